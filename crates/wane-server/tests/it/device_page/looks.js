// How the pages look, and to whom: screenshots at two widths in light and dark, axe-core on each, and
// nothing that has to be scrolled sideways.
'use strict';

const assert = require('node:assert/strict');
const { readFileSync, mkdirSync } = require('node:fs');
const path = require('node:path');

const SOURCE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const AXE = require('axe-core').version;

const WIDTHS = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };
const SCHEMES = ['light', 'dark'];

// Colours are the same at every width.
const SEEN_BY_AXE = new Set(['phone light', 'phone dark', 'desktop light']);

// What axe-core holds against a page, and how bad that is.
async function complaints(page) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(SOURCE);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  return violations.map(({ id, impact, nodes }) => ({
    id,
    impact,
    where: nodes.map((node) => `${node.target}: ${node.failureSummary}`),
  }));
}

async function sideways(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}

// Looks at a page in every way.
async function looked(person, stage, name) {
  const { page } = person;
  const found = [];
  for (const [width, size] of Object.entries(WIDTHS)) {
    await page.setViewportSize(size);
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      const file = path.join(stage.screenshots, `${name}-${width}-${colorScheme}.png`);
      await page.screenshot({ path: file, fullPage: true });
      const isSeen = SEEN_BY_AXE.has(`${width} ${colorScheme}`);
      const bad = (isSeen ? await complaints(page) : []).filter(({ impact }) =>
        ['serious', 'critical'].includes(impact),
      );
      found.push(...bad.map((one) => ({ name, width, colorScheme, ...one })));
      const over = await sideways(page);
      if (over > 0) found.push({ name, width, colorScheme, id: 'sideways', over });
    }
  }
  // The narrowest that phones are, or text twice as large on a wider one.
  await page.setViewportSize({ width: 320, height: 640 });
  const over = await sideways(page);
  if (over > 0) found.push({ name, width: 320, id: 'sideways', over });
  await page.setViewportSize(WIDTHS.phone);
  assert.deepEqual(found, []);
  assert.equal(await page.locator('html').getAttribute('lang'), 'en');
}

module.exports = {
  AXE,
  looks: {
    // The control of all that follows: what is wrong is found.
    async a_page_with_faults_is_noticed(person) {
      const { page } = person;
      await page.setContent(
        '<!doctype html><html lang="en"><title>x</title><main><h1>Faulty</h1><input>' +
          '<p style="color:#aaa;background:#fff">pale</p><div style="width:3000px">wide</div></main>',
      );
      const found = await complaints(page);
      const bad = found.map(({ id, impact }) => `${id} ${impact}`);
      assert.ok(bad.includes('label critical'), bad.join(', '));
      assert.ok(bad.includes('color-contrast serious'), bad.join(', '));
      assert.ok((await sideways(page)) > 0);
      await page.setContent(
        '<!doctype html><html lang="en"><title>x</title><main><h1>Right</h1>' +
          '<label>Name <input></label></main>',
      );
      assert.deepEqual(await complaints(page), []);
      assert.equal(await sideways(page), 0);
    },

    async the_pages_of_a_code_look_right(person, stage) {
      mkdirSync(stage.screenshots, { recursive: true });
      const codes = await person.devices.start('tv', { agent: 'Tube/1.0 (Television; Linux)' });
      await person.open();
      await looked(person, stage, '1-enter');
      await person.type('BCDFG-HJKLM');
      await looked(person, stage, '2-wrong-code');
      await person.open(codes.verification_uri_complete);
      await looked(person, stage, '3-compare');
      await person.button('Yes, it shows this code').click();
      await looked(person, stage, '4-sign-in');
      await person.signIn('alice', 'wrong');
      await looked(person, stage, '5-wrong-password');
      await person.signIn();
      await looked(person, stage, '6-confirm');
      await person.approve();
      await person.sees('Approved');
      await looked(person, stage, '7-approved');
    },

    async the_pages_of_other_ends_look_right(person, stage) {
      mkdirSync(stage.screenshots, { recursive: true });
      const codes = await person.devices.start();
      await person.reach(codes);
      await person.deny();
      await person.sees('Denied');
      await looked(person, stage, '8-denied');
      const other = await stage.person(true);
      await other.open();
      await other.type(codes.user_code);
      await other.sees('This request was answered before');
      await looked(other, stage, '9-answered-before');
      await other.context.close();
      const issued = await person.devices.start('issued');
      await person.open();
      await person.type(issued.user_code);
      await looked(person, stage, '10-sign-in-elsewhere');
      await person.open('/device/signed-in/issued/app?state=none');
      await looked(person, stage, '11-not-signed-in');
      for (const last of 'BCDFG') {
        await person.open();
        await person.type(`WWWWW-WWWW${last}`);
      }
      await person.type('WWWWW-WWWWH');
      await looked(person, stage, '12-too-many');
    },

    // A name as long as may be, without a blank to break at.
    async long_names_fit(person, stage) {
      mkdirSync(stage.screenshots, { recursive: true });
      await person.devices.register('long', 'demo/app', {
        name: 'W'.repeat(128),
        scopes: ['x'.repeat(128), 'read'],
      });
      const codes = await person.devices.start('long', { agent: 'A'.repeat(255) });
      await person.reach(codes);
      await looked(person, stage, '13-long-names');
      await person.approve();
      await looked(person, stage, '14-long-name-approved');
    },
  },
};
