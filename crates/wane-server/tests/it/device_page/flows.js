// What people do: type a code, follow a link, approve or deny, with a mouse or without.
'use strict';

const assert = require('node:assert/strict');

module.exports = {
  async a_code_is_typed_and_the_device_is_approved(person) {
    const codes = await person.devices.start('tv', { scope: 'read', agent: 'Tube/1.0 (Television)' });
    await person.open();
    await person.sees('Connect a device');
    await person.type(codes.user_code);
    await person.sees('Sign in to go on');
    await person.says('demo/app');
    await person.signIn();
    await person.sees('Connect Television?');
    await person.says('alice', 'demo/app', 'read', codes.address, 'Tube/1.0 (Television)', 'UTC');
    assert.ok(!(await person.text()).includes('write'), 'what it did not ask for');
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
    await person.approve();
    await person.sees('Approved');
    await person.says('Return to your device', 'Television');
    const linked = await person.devices.linked(codes);
    assert.deepEqual([linked.active, linked.sub, linked.scope], [true, 'alice', 'read']);
  },

  async a_device_is_denied(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    await person.deny();
    await person.sees('Denied');
    assert.equal(await person.devices.refused(codes), 'access_denied');
  },

  async the_link_asks_to_compare_the_code_and_approves_nothing_alone(person) {
    const codes = await person.devices.start();
    assert.ok(codes.verification_uri_complete.startsWith(codes.verification_uri));
    await person.open(codes.verification_uri_complete);
    await person.sees('Does your device show this code?');
    const shown = (await person.text()).replaceAll(/\s/g, '');
    assert.ok(shown.includes(codes.user_code), shown);
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
    await person.button('Yes, it shows this code').click();
    await person.signIn();
    assert.equal(await person.headline(), 'Connect Television?');
    await person.approve();
    await person.sees('Approved');
    await person.devices.linked(codes);
  },

  async a_link_with_another_code_leads_to_the_field(person) {
    const codes = await person.devices.start();
    await person.open(codes.verification_uri_complete);
    await person.link('No, enter another code').click();
    await person.sees('Connect a device');
    assert.equal(await person.page.getByLabel('Code').inputValue(), '');
  },

  // Manual entry worked and the link did not, or the reverse.
  async every_way_of_writing_a_code_finds_it(person) {
    const ways = [
      (code) => code.toLowerCase(),
      (code) => code.replace('-', ''),
      (code) => ` ${code.replace('-', ' ').toLowerCase()} `,
      (code) => code.replace('-', '\u2013'),
      (code) => [...code.replace('-', '')].join('-'),
    ];
    for (const way of ways) {
      const codes = await person.devices.start();
      await person.open();
      await person.type(way(codes.user_code));
      // A decision signs out.
      await person.signIn();
      await person.sees('Connect Television?');
      const shown = (await person.text()).replaceAll(/\s/g, '');
      assert.ok(shown.includes(codes.user_code), 'as the device shows it');
      await person.open(`/device?user_code=${encodeURIComponent(way(codes.user_code))}`);
      await person.sees('Does your device show this code?');
      await person.button('Yes, it shows this code').click();
      await person.approve();
      await person.sees('Approved');
      await person.devices.linked(codes);
    }
  },

  async consent_is_asked_for_where_no_scope_is(person) {
    const codes = await person.devices.start('plain');
    await person.reach(codes);
    await person.says('No particular permission');
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
    await person.approve();
    await person.sees('Approved');
    const linked = await person.devices.linked(codes);
    assert.deepEqual([linked.active, linked.scope], [true, undefined]);
  },

  // Nothing but keys, and where they lead can be seen.
  async everything_works_by_keyboard_alone(person) {
    const { page } = person;
    const codes = await person.devices.start();
    const press = (key) => page.keyboard.press(key);
    const seen = async () => {
      const style = await page.locator(':focus').evaluate((element) => {
        const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
        return { outlineStyle, outlineWidth, boxShadow };
      });
      const isSeen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
      assert.ok(isSeen || style.boxShadow !== 'none', `nobody sees the focus: ${JSON.stringify(style)}`);
    };
    await person.open();
    await page.locator('#user_code:focus').waitFor();
    await seen();
    await page.keyboard.type(codes.user_code.toLowerCase());
    await press('Enter');
    await page.locator('#name:focus').waitFor();
    await page.keyboard.type('alice');
    await press('Tab');
    await page.locator('#password:focus').waitFor();
    await page.keyboard.type('wonderland');
    await press('Enter');
    await person.button('Approve').waitFor();
    const passed = [];
    for (let tabs = 0; tabs < 10; tabs += 1) {
      await press('Tab');
      const name = (await page.locator(':focus').innerText()).trim();
      passed.push(name);
      await seen();
      if (name === 'Approve') break;
    }
    assert.equal(passed.at(-1), 'Approve', passed.join(', '));
    assert.ok(passed.length <= 4, `it is not far away: ${passed}`);
    await press('Tab');
    assert.equal((await page.locator(':focus').innerText()).trim(), 'Deny');
    await press('Shift+Tab');
    await press('Enter');
    await page.getByText('Return to your device').waitFor();
    await person.devices.linked(codes);
  },

  async the_qr_code_of_a_device_is_a_picture(person) {
    const codes = await person.devices.start();
    const code = encodeURIComponent(codes.user_code);
    const answer = await person.open(`/device/qr.svg?user_code=${code}`);
    assert.equal(answer.status(), 200);
    assert.match(answer.headers()['content-type'], /^image\/svg\+xml/);
    const [, , width, height] = (await person.page.locator('svg').getAttribute('viewBox')).split(' ');
    assert.ok(width > 20 && width === height, 'it is square');
  },
};
