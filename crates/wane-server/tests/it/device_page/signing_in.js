// Signing in elsewhere: at an OpenID Connect issuer, and by an assertion of the application.
'use strict';

const assert = require('node:assert/strict');

// The pages of oidc-provider: any name and password, then consent.
async function atTheIssuer(person, name) {
  const { page } = person;
  await page.locator('input[name=login]').fill(name);
  await page.locator('input[name=password]').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
}

async function toSignIn(person, as) {
  const codes = await person.devices.start(as);
  await person.open();
  await person.type(codes.user_code);
  await person.sees('Sign in to go on');
  return codes;
}

module.exports = {
  async people_sign_in_at_an_openid_connect_issuer(person, stage) {
    const codes = await toSignIn(person, 'issued');
    await person.says('issued/app');
    await person.link('Sign in at').click();
    assert.ok(person.page.url().startsWith(stage.issuer.url), person.page.url());
    await atTheIssuer(person, 'dora');
    await person.sees('Connect Radio?');
    await person.says('Person dora');
    await person.approve();
    await person.sees('Approved');
    assert.equal((await person.devices.linked(codes)).sub, 'person-dora');
    // A second device: a decision signed them out here, and the issuer knows them still.
    const second = await person.devices.start('issued');
    await person.open(second.verification_uri_complete);
    await person.button('Yes, it shows this code').click();
    await person.sees('Sign in to go on');
    await person.link('Sign in at').click();
    await person.sees('Connect Radio?');
  },

  async who_cancels_at_the_issuer_can_try_again(person) {
    const codes = await toSignIn(person, 'issued');
    await person.link('Sign in at').click();
    await person.page.getByRole('link', { name: 'Cancel' }).click();
    await person.sees('You are not signed in');
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
    await person.link('Try again').click();
    await person.link('Sign in at').click();
    await atTheIssuer(person, 'emil');
    await person.sees('Connect Radio?');
  },

  async what_the_issuer_sent_is_good_once_and_for_one_browser(person, stage) {
    await toSignIn(person, 'issued');
    await person.link('Sign in at').click();
    const [request] = await Promise.all([
      person.page.waitForRequest((sent) => sent.url().includes('/device/signed-in')),
      atTheIssuer(person, 'fritz'),
    ]);
    await person.sees('Connect Radio?');
    const other = await stage.person(person.javaScriptEnabled);
    await toSignIn(other, 'issued');
    await other.open(request.url());
    await other.sees('This sign-in is not under way');
    await other.context.close();
    // The same visitor again, as by a reload: signed in already.
    await person.open(request.url());
    await person.sees('Connect Radio?');
  },

  async people_sign_in_by_an_assertion_of_the_application(person, stage) {
    const codes = await toSignIn(person, 'asserted');
    await person.link('Sign in at').click();
    assert.ok(person.page.url().startsWith(stage.application.url), person.page.url());
    await person.link('Go on as carol').click();
    await person.sees('Connect Camera?');
    await person.says('Carol C.', 'asserted/app');
    await person.approve();
    await person.sees('Approved');
    assert.equal((await person.devices.linked(codes)).sub, 'carol');
  },

  async an_assertion_that_is_not_right_signs_nobody_in(person) {
    const codes = await toSignIn(person, 'asserted');
    for (const name of [
      'Signed by another',
      'For another page',
      'For another visitor',
      'Of yesterday',
      'Not signed',
    ]) {
      await person.open('/device/sign-in');
      await person.link('Sign in at').click();
      await person.link(name).click();
      await person.sees('You are not signed in');
      await person.open('/device/confirm');
      await person.sees('Sign in to go on');
    }
    assert.equal(await person.devices.refused(codes), 'authorization_pending');
  },

  // Alice of one application is nobody in another.
  async who_signed_in_to_one_application_is_nobody_in_another(person) {
    const own = await person.devices.start();
    await person.reach(own);
    const foreign = await person.devices.start('asserted');
    await person.open(foreign.verification_uri_complete);
    await person.button('Yes, it shows this code').click();
    await person.sees('Sign in to go on');
    await person.open('/device/confirm');
    await person.sees('Sign in to go on');
    assert.equal(await person.devices.refused(foreign), 'authorization_pending');
  },
};
