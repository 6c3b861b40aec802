// What people do that nobody plans for: wrong codes, going back, two clicks, two windows.
'use strict';

const assert = require('node:assert/strict');

const WRONG = 'ZZZZZ-ZZZZB';

module.exports = {
  async a_wrong_code_has_a_message_and_the_input_is_kept(person) {
    const codes = await person.devices.start();
    await person.open();
    for (const [typed, said] of [
      [WRONG, 'There is no such code'],
      ['bcdfg', 'not a whole code'],
      ['1234567890', 'not a whole code'],
      ['"><script>alert(1)</script>', 'not a whole code'],
    ]) {
      await person.type(typed);
      assert.ok((await person.alert()).includes(said), await person.alert());
      const field = person.page.getByLabel('Code');
      assert.equal(await field.inputValue(), typed);
      assert.equal(await field.getAttribute('aria-invalid'), 'true');
      assert.match(await person.page.title(), /^Error/, 'a tab says it too');
    }
    await person.type(codes.user_code);
    await person.sees('Sign in to go on');
  },

  async a_wrong_code_in_a_link_has_a_message(person) {
    await person.open('/device?user_code=%3Cb%3Enonsense');
    assert.ok((await person.alert()).includes('not a whole code'));
    assert.equal(await person.page.getByLabel('Code').inputValue(), '<b>nonsense');
    await person.open(`/device?user_code=${WRONG}`);
    await person.sees('Does your device show this code?');
    await person.button('Yes, it shows this code').click();
    assert.ok((await person.alert()).includes('There is no such code'));
  },

  async a_wrong_password_has_a_message_and_the_name_is_kept(person) {
    const codes = await person.devices.start();
    await person.open();
    await person.type(codes.user_code);
    await person.signIn('alice', 'wrong');
    assert.ok((await person.alert()).includes('wrong'));
    assert.equal(await person.page.getByLabel('Name').inputValue(), 'alice');
    assert.equal(await person.page.getByLabel('Password').inputValue(), '');
    await person.signIn('nobody', 'wonderland');
    assert.ok((await person.alert()).includes('wrong'));
    await person.signIn();
    await person.sees('Connect Television?');
  },

  async the_back_button_undoes_nothing(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    await person.approve();
    await person.sees('Approved');
    // Back to the question, which was answered.
    await person.page.goBack();
    const question = person.button('Deny');
    if (await question.count()) {
      await person.settled();
      await question.click();
    }
    await person.sees('Approved');
    await person.page.goBack();
    await person.page.goForward();
    assert.equal((await person.devices.linked(codes)).sub, 'alice');
  },

  async a_reload_of_any_page_shows_it_again(person) {
    const codes = await person.devices.start();
    await person.open();
    await person.type(codes.user_code);
    // Each page is seen before it is reloaded: a reload in the middle of a click takes the click back.
    await person.sees('Sign in to go on');
    await person.page.reload();
    await person.sees('Sign in to go on');
    await person.signIn();
    await person.sees('Connect Television?');
    await person.page.reload();
    await person.sees('Connect Television?');
    await person.approve();
    await person.sees('Approved');
    await person.page.reload();
    await person.sees('Approved');
    await person.devices.linked(codes);
  },

  async a_form_that_is_sent_twice_decides_once(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    await person.settled();
    await person.button('Approve').dblclick();
    await person.page.getByText('Return to your device').waitFor();
    await person.sees('Approved');
    assert.equal((await person.devices.linked(codes)).sub, 'alice');
  },

  async of_two_windows_the_first_decides(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    const other = await person.context.newPage();
    await other.goto(`${person.url}/device/confirm`);
    await person.approve();
    await person.sees('Approved');
    await other.getByRole('button', { name: 'Deny', exact: true }).click();
    await other.getByRole('heading', { name: 'Approved' }).waitFor();
    await person.devices.linked(codes);
  },

  async of_two_people_the_first_decides(person, stage) {
    const codes = await person.devices.start();
    const other = await stage.person(person.javaScriptEnabled);
    await person.reach(codes);
    await other.reach(codes, 'bob', 'builder');
    await person.deny();
    await person.sees('Denied');
    await other.approve();
    const headline = await other.headline();
    assert.ok(['Denied', 'This request was answered before'].includes(headline), headline);
    await other.context.close();
    assert.equal(await person.devices.refused(codes), 'access_denied');
  },

  // One window shows a request, the other goes on to another one: a form counts for what it showed.
  async a_form_counts_for_the_code_that_it_showed(person) {
    const [first, second] = [await person.devices.start(), await person.devices.start('plain')];
    await person.reach(first);
    const other = await person.context.newPage();
    await other.goto(`${person.url}/device`);
    await other.getByLabel('Code').fill(second.user_code);
    await other.getByRole('button', { name: 'Continue' }).click();
    await other.getByRole('heading', { name: 'Connect Plain?' }).waitFor();
    await person.approve();
    assert.equal(await person.devices.refused(second), 'authorization_pending');
    await other.close();
  },

  async another_person_may_sign_in_instead(person) {
    const codes = await person.devices.start();
    await person.reach(codes);
    await person.button('Not you?').click();
    await person.sees('Sign in to go on');
    await person.signIn('bob', 'builder');
    await person.says('bob');
    await person.approve();
    await person.sees('Approved');
    assert.equal((await person.devices.linked(codes)).sub, 'bob');
  },

  async a_page_in_the_middle_leads_back_to_the_start(person) {
    for (const path of ['/device/confirm', '/device/done', '/device/sign-in']) {
      await person.open(path);
      await person.sees('Connect a device');
    }
  },
};
