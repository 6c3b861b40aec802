// The server as devices, its operator and its application see it.
'use strict';

const { ownAddress, send } = require('./addresses.js');

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

// What a hostile client is called.
const HTML = '<img src=x onerror=alert(1)><b>TV</b>';

class Devices {
  constructor({ url, admin, adminKey, key }) {
    Object.assign(this, { url, admin, adminKey, keys: { 'demo/app': key } });
    this.clients = {};
  }

  async operator(method, path, body) {
    const headers = { authorization: `Bearer ${this.adminKey}`, 'content-type': 'application/json' };
    const answer = await fetch(`${this.admin}/api/v1/admin${path}`, {
      method,
      headers,
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  async register(as, app, more) {
    const [owner, name] = app.split('/');
    const client = { owner, app: name, name: 'Television', scopes: ['read', 'write'], ...more };
    const { clientId } = await this.operator('POST', '/oauth-clients', client);
    this.clients[as] = { id: clientId, app };
  }

  async makeApp(app) {
    const [owner, name] = app.split('/');
    this.keys[app] = (await this.operator('POST', '/apps', { owner, app: name })).key;
  }

  // Applications whose people sign in elsewhere, and clients of each kind.
  async prepare(issuer, application) {
    await Promise.all(['issued/app', 'asserted/app'].map((app) => this.makeApp(app)));
    const { url: issuerUrl, clientId, clientSecret } = issuer;
    await this.operator('PUT', '/apps/issued/app/sign-in', {
      oidc: { issuer: issuerUrl, clientId, clientSecret },
    });
    const told = await this.operator('PUT', '/apps/asserted/app/sign-in', {
      assertion: { url: `${application.url}/sign-in` },
    });
    application.secret = told.assertion.secret;
    await this.register('tv', 'demo/app', {});
    await this.register('plain', 'demo/app', { name: 'Plain', scopes: [] });
    await this.register('html', 'demo/app', { name: HTML, scopes: ['<i>read</i>'] });
    await this.register('short', 'demo/app', { name: 'Hasty', codeLifeSeconds: 60 });
    await this.register('issued', 'issued/app', { name: 'Radio' });
    await this.register('asserted', 'asserted/app', { name: 'Camera' });
  }

  form(path, pairs, headers = {}, address = undefined) {
    return send(`${this.url}${path}`, pairs, headers, address);
  }

  // Codes for a device of this client, which asks from an address of its own.
  async start(as = 'tv', { scope, agent = 'Tube/1.0' } = {}) {
    const client = this.clients[as];
    const address = ownAddress();
    const pairs = { client_id: client.id, ...(scope && { scope }) };
    const path = `/oauth/${client.app}/device_authorization`;
    const codes = await this.form(path, pairs, { 'user-agent': agent }, address);
    if (codes.status !== 200) throw new Error(`no codes: ${JSON.stringify(codes)}`);
    return { ...codes, client, address };
  }

  poll({ client, device_code }) {
    const pairs = { client_id: client.id, grant_type: GRANT, device_code };
    return this.form(`/oauth/${client.app}/token`, pairs);
  }

  // What a device is refused with.
  async refused(codes) {
    const told = await this.poll(codes);
    if (told.status !== 400) throw new Error(`it was given ${JSON.stringify(told)}`);
    return told.error;
  }

  // Whom the device was linked to.
  async linked(codes) {
    const told = await this.poll(codes);
    if (told.status !== 200) throw new Error(`it is not linked: ${JSON.stringify(told)}`);
    const { app } = codes.client;
    const headers = { authorization: `Bearer ${this.keys[app]}` };
    const seen = await this.form(`/oauth/${app}/introspect`, { token: told.access_token }, headers);
    return { ...seen, token: told.access_token };
  }
}

module.exports = { Devices, HTML };
