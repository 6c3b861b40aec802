// A device that logs in through Octokit, as tools made for GitHub do.
//
//     octokit_client.js '{"url": .., "clientId": .., "scopes": [..]}'
//
// Each request, the codes, and what came of it is one line of JSON on the standard output.
'use strict';

const { pathToFileURL } = require('node:url');

const told = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

// A module that only `import` takes, found where NODE_PATH says.
const imported = (name) => import(pathToFileURL(require.resolve(name)).href);

async function main() {
  const asked = JSON.parse(process.argv[2]);
  const { createOAuthDeviceAuth } = await imported('@octokit/auth-oauth-device');
  const { request } = await imported('@octokit/request');
  const begin = Date.now();
  const seen = async (url, options) => {
    const answer = await fetch(url, options);
    const type = new Headers(options.headers).get('content-type');
    const path = new URL(url).pathname;
    told({ path, type, status: answer.status, at: Date.now() - begin });
    return answer;
  };
  const auth = createOAuthDeviceAuth({
    clientType: asked.clientType ?? 'oauth-app',
    clientId: asked.clientId,
    scopes: asked.scopes,
    onVerification: (codes) => told({ codes }),
    request: request.defaults({ baseUrl: asked.url, request: { fetch: seen } }),
  });
  const { token, scopes, tokenType } = await auth({ type: 'oauth' });
  told({ token, scopes, tokenType });
}

main().catch((error) => {
  told({ raised: error.name, said: error.message, error: error.response?.data?.error ?? null });
});
