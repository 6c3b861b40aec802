// Addresses of one's own: this machine has all that begin with 127, and what is limited is limited by
// address.
'use strict';

const http = require('node:http');

let given = 0;

// An address that nobody else here has.
function ownAddress() {
  given += 1;
  return `127.1.${given >> 8}.${given & 255}`;
}

// A form from this address, as a device sends it.
function send(url, pairs, headers, localAddress) {
  return new Promise((resolve, reject) => {
    const type = { 'content-type': 'application/x-www-form-urlencoded' };
    const options = { method: 'POST', headers: { ...type, ...headers }, localAddress };
    const request = http.request(url, options, (answer) => {
      const parts = [];
      answer.on('data', (part) => parts.push(part));
      answer.on('error', reject);
      answer.on('end', () => {
        const text = Buffer.concat(parts).toString();
        resolve({ status: answer.statusCode, ...JSON.parse(text) });
      });
    });
    request.on('error', reject);
    request.end(new URLSearchParams(pairs).toString());
  });
}

// A proxy through which a browser comes from this address.
function proxyFrom(localAddress) {
  const server = http.createServer((asked, answer) => {
    const { method, headers } = asked;
    const passedOn = http.request(
      asked.url,
      { method, headers, localAddress, family: 4 },
      (came) => {
        answer.writeHead(came.statusCode, came.rawHeaders);
        came.pipe(answer);
      },
    );
    passedOn.on('error', () => answer.destroy());
    asked.pipe(passedOn);
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const close = () => {
        server.closeAllConnections();
        server.close();
      };
      resolve({ url: `http://127.0.0.1:${server.address().port}`, close });
    });
  });
}

module.exports = { ownAddress, proxyFrom, send };
