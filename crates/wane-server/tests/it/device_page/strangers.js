// What strangers try: HTML where text belongs, forms of other sites, frames, scripts, cookies.
'use strict';

const assert = require('node:assert/strict');
const { HTML } = require('./devices.js');

module.exports = {
  async html_in_names_scopes_and_agents_is_shown_as_text(person) {
    const agent = '</small><script>alert(2)</script>';
    const codes = await person.devices.start('html', { agent });
    await person.reach(codes);
    await person.sees(`Connect ${HTML}?`);
    await person.says('<i>read</i>', agent);
    assert.equal(await person.page.locator('main img, main script, main b, main i').count(), 0);
    await person.approve();
    await person.says(HTML);
    assert.equal(await person.page.locator('main img').count(), 0);
  },

  async html_in_codes_and_names_that_are_typed_is_text(person) {
    const typed = '"><img src=x onerror=alert(1)>';
    await person.open(`/device?user_code=${encodeURIComponent(typed)}`);
    assert.equal(await person.page.getByLabel('Code').inputValue(), typed);
    await person.type(typed);
    assert.equal(await person.page.getByLabel('Code').inputValue(), typed);
    const codes = await person.devices.start();
    await person.type(codes.user_code);
    await person.signIn(typed, typed);
    assert.equal(await person.page.getByLabel('Name').inputValue(), typed);
    assert.equal(await person.page.locator('img, script').count(), 0);
  },

  // Signed in, with a request open: another site cannot decide it.
  async a_form_of_another_site_decides_nothing(person, stage) {
    const codes = await person.devices.start();
    await person.reach(codes);
    const target = `${person.url}/device/decide`;
    const fields = '<input type="hidden" name="decision" value="approve"><button>Win</button>';
    stage.application.pages['/attack'] = `<form method="post" action="${target}">${fields}</form>`;
    // Another host, so another site, though it is the same machine.
    await person.open(`http://localhost:${stage.application.port}/attack`);
    await person.button('Win').click();
    await person.sees('This came from another site');
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
  },

  async every_page_keeps_others_out(person) {
    const codes = await person.devices.start();
    const paths = new Set();
    const answers = [];
    person.page.on('response', (answer) => {
      const url = new URL(answer.url());
      if (answer.url().startsWith(person.url)) answers.push([url.pathname, answer.headers()]);
    });
    await person.reach(codes);
    await person.approve();
    await person.sees('Approved');
    for (const [path, headers] of answers) {
      paths.add(path);
      const policy = headers['content-security-policy'] ?? '';
      for (const rule of ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'",
        "base-uri 'none'"]) {
        assert.ok(policy.includes(rule), `${path}: no ${rule} in ${policy}`);
      }
      assert.ok(!/unsafe|script-src|\*/.test(policy), `${path}: ${policy}`);
      assert.equal(headers['x-content-type-options'], 'nosniff', path);
      assert.equal(headers['referrer-policy'], 'no-referrer', path);
      if (!/\.(css|svg)$/.test(path)) assert.equal(headers['cache-control'], 'no-store', path);
    }
    for (const path of ['/device', '/device/sign-in', '/device/confirm', '/device/done']) {
      assert.ok(paths.has(path), `${path} was not seen in ${[...paths]}`);
    }
    assert.deepEqual(person.strays, [], 'nothing is loaded from elsewhere');
  },

  async the_cookie_is_out_of_reach_of_scripts_and_other_sites(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    const cookie = await person.cookie();
    assert.equal(cookie.httpOnly, true);
    assert.ok(['Lax', 'Strict'].includes(cookie.sameSite), cookie.sameSite);
  },

  // A session from before the sign-in is of no use after it.
  async a_cookie_from_before_the_sign_in_opens_nothing(person, stage) {
    const codes = await person.devices.start();
    await person.open();
    await person.type(codes.user_code);
    await person.sees('Sign in to go on');
    const before = await person.cookie();
    await person.signIn();
    await person.sees('Connect Television?');
    const thief = await stage.person(person.javaScriptEnabled);
    await thief.context.addCookies([before]);
    await thief.open('/device/confirm');
    await thief.sees('Sign in to go on');
    // Nor is one that was changed.
    const after = await person.cookie();
    const [first, ...rest] = after.value;
    const changed = { ...after, value: [first === 'A' ? 'B' : 'A', ...rest].join('') };
    await thief.context.addCookies([changed]);
    await thief.open('/device/confirm');
    await thief.sees('Connect a device');
    await thief.context.close();
  },
};
