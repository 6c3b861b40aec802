// Somebody in front of a browser, who finds things by what they are called.
'use strict';

const assert = require('node:assert/strict');

class Person {
  constructor(given) {
    Object.assign(this, given);
    this.url = this.stage.url;
    this.devices = this.stage.devices;
    this.dialogs = [];
    this.page.on('dialog', (dialog) => {
      this.dialogs.push(dialog.message());
      return dialog.dismiss();
    });
  }

  button(name) {
    return this.page.getByRole('button', { name, exact: true });
  }

  link(name) {
    return this.page.getByRole('link', { name });
  }

  async open(path = '/device') {
    return this.page.goto(path.startsWith('http') ? path : `${this.url}${path}`);
  }

  // The headline of the page, which each has once.
  async headline() {
    const headlines = this.page.getByRole('heading', { level: 1 });
    assert.equal(await headlines.count(), 1, 'one headline');
    return (await headlines.innerText()).trim();
  }

  // The page that comes has this headline: a busy machine takes its time to show it.
  async sees(headline) {
    const sought = this.page.getByRole('heading', { level: 1, name: headline, exact: true });
    await sought.waitFor({ timeout: 10_000 }).catch(() => {});
    assert.equal(await this.headline(), headline);
  }

  // A click that leads to another page, which is there when this returns.
  async press(name) {
    await this.button(name).click();
    await this.page.waitForLoadState('load');
  }

  text() {
    return this.page.locator('main').innerText();
  }

  async says(...parts) {
    const text = await this.text();
    for (const part of parts) assert.ok(text.includes(part), `no ${part} in: ${text}`);
  }

  // What is said at once to those who listen.
  alert() {
    return this.page.getByRole('alert').innerText();
  }

  async type(code) {
    await this.page.getByLabel('Code').fill(code);
    await this.press('Continue');
  }

  async signIn(name = 'alice', password = 'wonderland') {
    await this.page.getByLabel('Name').fill(name);
    await this.page.getByLabel('Password').fill(password);
    await this.press('Sign in');
  }

  // From the code to the question whether to approve.
  async reach(codes, name, password) {
    await this.open();
    await this.type(codes.user_code);
    await this.signIn(name, password);
    await this.button('Approve').waitFor();
  }

  async approve() {
    await this.decide('Approve');
  }

  async deny() {
    await this.decide('Deny');
  }

  async decide(decision) {
    await this.settled();
    await this.press(decision);
  }

  // The buttons of a decision take no click in their first moments, so that nobody is tricked into one.
  settled() {
    return this.page.waitForTimeout(1000);
  }

  async cookie() {
    const cookies = await this.context.cookies(`${this.url}/device`);
    assert.equal(cookies.length, 1, JSON.stringify(cookies));
    return cookies[0];
  }
}

module.exports = { Person };
