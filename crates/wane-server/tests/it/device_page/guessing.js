// Guessing: five misses of one address, and what does not count as one.
'use strict';

const assert = require('node:assert/strict');

const LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';

// Codes that nobody was given, unlike those of other scenarios.
let drawn = 0;
function wrong() {
  drawn += 1;
  const letter = (place) => LETTERS[Math.floor(drawn / 20 ** place) % 20];
  return `XXXXX-${[4, 3, 2, 1, 0].map(letter).join('')}`;
}

async function misses(person, code) {
  await person.type(code);
  assert.ok((await person.alert()).includes('There is no such code'), await person.alert());
}

async function limited(person, code) {
  await person.type(code);
  assert.ok((await person.alert()).includes('Too many wrong tries'), await person.alert());
}

module.exports = {
  async a_reload_of_the_page_spends_no_attempts(person) {
    const codes = await person.devices.start();
    await person.open();
    const first = wrong();
    await misses(person, first);
    // A reload sends the form again.
    for (let times = 0; times < 3; times += 1) {
      await person.page.reload();
      assert.ok((await person.alert()).includes('There is no such code'), await person.alert());
    }
    for (let times = 0; times < 3; times += 1) {
      await person.open(`/device?user_code=${wrong()}`);
      await person.open(codes.verification_uri_complete);
    }
    await person.open();
    for (let miss = 1; miss < 5; miss += 1) await misses(person, wrong());
    await limited(person, wrong());
  },

  async a_success_does_not_clear_the_failures(person) {
    await person.open();
    for (let miss = 0; miss < 4; miss += 1) await misses(person, wrong());
    const own = await person.devices.start();
    await person.reach(own);
    await person.approve();
    await person.sees('Approved');
    await person.open();
    await misses(person, wrong());
    await limited(person, wrong());
    const right = await person.devices.start();
    await limited(person, right.user_code);
    assert.equal(await person.devices.refused(right), 'authorization_pending');
  },

  async variants_of_case_and_dashes_do_not_evade_the_limiter(person, stage) {
    await person.open();
    for (let miss = 0; miss < 5; miss += 1) await misses(person, wrong());
    const { user_code: code } = await person.devices.start();
    const bare = code.replace('-', '');
    for (const typed of [code, bare, code.toLowerCase(), ` ${bare} `, [...bare].join('-')]) {
      await limited(person, typed);
      assert.equal(await person.page.getByLabel('Code').inputValue(), typed, 'it is kept');
    }
    const other = await stage.person(person.javaScriptEnabled);
    await other.open();
    await other.type(code);
    await other.sees('Sign in to go on');
    await other.context.close();
  },
};
