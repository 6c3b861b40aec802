// A code that expires while somebody looks at it. Codes live a minute at least.
'use strict';

const assert = require('node:assert/strict');

const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

module.exports = {
  async a_code_that_expires_while_the_page_is_open_is_over(person) {
    const [codes, other] = [await person.devices.start('short'), await person.devices.start('short')];
    const begun = Date.now();
    await person.reach(codes);
    await person.sees('Connect Hasty?');
    // The other one stays at its first step.
    const window = await person.context.newPage();
    await window.goto(other.verification_uri_complete);
    await pause(61_000 - (Date.now() - begun));
    await person.approve();
    await person.sees('This code has expired');
    assert.equal(await person.devices.refused(codes), 'expired_token');
    await person.link('Enter a new code').click();
    await person.sees('Connect a device');
    await person.type(codes.user_code);
    assert.ok((await person.alert()).includes('There is no such code'), await person.alert());
    await window.getByRole('button', { name: 'Yes, it shows this code' }).click();
    const said = await window.getByRole('alert').innerText();
    assert.ok(said.includes('There is no such code'), said);
    assert.equal(await person.devices.refused(other), 'expired_token');
  },
};
