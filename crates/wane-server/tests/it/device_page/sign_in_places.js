// Where people sign in: a real OpenID Connect issuer, and an application that vouches for its own.
'use strict';

const { createHmac } = require('node:crypto');
const { createServer } = require('node:http');
const { pathToFileURL } = require('node:url');

async function listening(server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

// oidc-provider, which asks for any name and password and then for consent.
async function startIssuer({ url }) {
  const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);
  const server = createServer();
  const issuer = `http://127.0.0.1:${await listening(server)}`;
  const [clientId, clientSecret] = ['wane', 'secret-of-wane-at-its-issuer'];
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: clientId,
        client_secret: clientSecret,
        redirect_uris: [`${url}/device/signed-in/issued/app`],
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
    ],
    cookies: { keys: ['keys-for-cookies-of-the-issuer'] },
    pkce: { required: () => true, methods: ['S256'] },
    claims: { openid: ['sub'], profile: ['name'] },
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({
      accountId: id,
      claims: async () => ({ sub: `person-${id}`, name: `Person ${id}` }),
    }),
  });
  const tokens = [];
  provider.on('grant.success', (ctx) => tokens.push(ctx.oidc.params.code));
  server.on('request', provider.callback());
  return { url: issuer, clientId, clientSecret, tokens, close: () => server.close() };
}

const encoded = (part) => Buffer.from(JSON.stringify(part)).toString('base64url');

// A JWT, as the application signs it for its people.
function assertion(secret, claims, header = { alg: 'HS256', typ: 'JWT' }) {
  const signed = `${encoded(header)}.${encoded(claims)}`;
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}

// A tiny application: its page offers to go on as carol; and it serves whatever a stranger would.
async function startApplication({ url }) {
  const place = { secret: null, pages: {} };
  const now = () => Math.floor(Date.now() / 1000);
  const links = (given) => {
    const state = given.searchParams.get('state');
    const claims = { sub: 'carol', name: 'Carol C.', aud: `${url}/device`, nonce: state };
    const right = { ...claims, iat: now(), exp: now() + 60 };
    const made = {
      'Go on as carol': assertion(place.secret, right),
      'Signed by another': assertion('another secret', right),
      'For another page': assertion(place.secret, { ...right, aud: 'https://other.example/' }),
      'For another visitor': assertion(place.secret, { ...right, nonce: 'other' }),
      'Of yesterday': assertion(place.secret, { ...right, iat: now() - 86400, exp: now() - 86000 }),
      'Not signed': `${encoded({ alg: 'none' })}.${encoded(right)}.`,
    };
    return Object.entries(made).map(([name, jwt]) => {
      const back = new URL(given.searchParams.get('return_to'));
      back.searchParams.set('state', state);
      back.searchParams.set('assertion', jwt);
      return `<p><a href="${back}">${name}</a></p>`.replaceAll('&', '&amp;');
    });
  };
  const server = createServer((request, answer) => {
    const given = new URL(request.url, place.url);
    answer.setHeader('content-type', 'text/html; charset=utf-8');
    const body = given.pathname === '/sign-in' ? links(given).join('') : place.pages[given.pathname];
    answer.statusCode = body ? 200 : 404;
    answer.end(`<!doctype html><html lang="en"><title>App</title>${body ?? ''}`);
  });
  place.port = await listening(server);
  place.url = `http://127.0.0.1:${place.port}`;
  place.close = () => server.close();
  return place;
}

module.exports = { startIssuer, startApplication };
