// Drives the page /device in Chromium: every scenario in a context of its own without JavaScript, which
// the pages do not need, and those with it where it could make a difference. One line of JSON tells what
// became of each.
//
//     driver.js '{"url": .., "admin": .., "adminKey": .., "key": .., "screenshots": .., "chromium": ..}'
//
// With "only" it plays the scenarios whose names match.
'use strict';

const { chromium } = require('playwright-core');
const { ownAddress, proxyFrom } = require('./addresses.js');
const { Devices } = require('./devices.js');
const { Person } = require('./person.js');
const { startIssuer, startApplication } = require('./sign_in_places.js');
const { AXE, looks } = require('./looks.js');

// Scenarios that wait for a code to expire: begun first, as they sleep most of the time.
const SLOW = require('./expiring.js');
const SCENARIOS = {
  ...require('./flows.js'),
  ...require('./going_astray.js'),
  ...require('./guessing.js'),
  ...require('./signing_in.js'),
  ...require('./strangers.js'),
};

// Played with JavaScript as well: what a script could do, and what browsers do by themselves.
const WITH_SCRIPTS = new Set([
  'a_code_is_typed_and_the_device_is_approved',
  'everything_works_by_keyboard_alone',
  'the_back_button_undoes_nothing',
  'a_form_that_is_sent_twice_decides_once',
  'people_sign_in_at_an_openid_connect_issuer',
  ...Object.keys(require('./strangers.js')),
]);

// Scenarios at a time: the machine may have two processors.
const SIDE_BY_SIDE = 3;
const PATIENCE = 60_000;

const told = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
// What a package prints is for people.
for (const name of ['log', 'info', 'warn']) console[name] = console.error;

class Stage {
  constructor(browser, setting) {
    Object.assign(this, setting, { browser });
  }

  // Somebody with a browser of their own, at an address of their own.
  async person(javaScriptEnabled, options = {}) {
    const proxy = await proxyFrom(ownAddress());
    const context = await this.browser.newContext({
      javaScriptEnabled,
      // Without this rule Chromium goes to its own machine directly.
      proxy: { server: proxy.url, bypass: '<-loopback>' },
      viewport: { width: 390, height: 844 },
      ...options,
    });
    context.setDefaultTimeout(PATIENCE);
    context.on('close', proxy.close);
    const strays = [];
    // Nothing is loaded from anywhere but this machine.
    await context.route(
      (url) => !['127.0.0.1', 'localhost'].includes(url.hostname),
      (route) => {
        strays.push(route.request().url());
        return route.abort();
      },
    );
    const page = await context.newPage();
    return new Person({ stage: this, context, page, strays, javaScriptEnabled });
  }
}

async function played(stage, name, scenario, javaScriptEnabled) {
  const begin = Date.now();
  const result = { name, javaScript: javaScriptEnabled };
  const person = await stage.person(javaScriptEnabled);
  try {
    await scenario(person, stage);
    if (person.dialogs.length) throw new Error(`a script ran: ${person.dialogs}`);
  } catch (error) {
    result.error = String(error.stack ?? error);
    const at = person.page.url();
    const text = await person.page.locator('body').innerText({ timeout: 1000 }).catch(() => '');
    result.error += `\nat ${at}:\n${text}`;
  }
  await person.context.close();
  told({ ...result, millis: Date.now() - begin });
}

async function all(stage) {
  const wanted = (scenarios) =>
    Object.entries(scenarios).filter(([name]) => new RegExp(stage.only ?? '').test(name));
  const waiting = wanted(SLOW).map(([name, scenario]) => played(stage, name, scenario, false));
  const queue = [];
  for (const [name, scenario] of wanted(SCENARIOS)) {
    queue.push(() => played(stage, name, scenario, false));
    if (WITH_SCRIPTS.has(name)) queue.push(() => played(stage, name, scenario, true));
  }
  queue.push(...wanted(looks).map(([name, look]) => () => played(stage, name, look, true)));
  const worker = async () => {
    while (queue.length) await queue.shift()();
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, worker));
  await Promise.all(waiting);
}

async function main() {
  const asked = JSON.parse(process.argv[2]);
  // The sandbox needs what a container or root does not have; every page is ours.
  const browser = await chromium.launch({
    executablePath: asked.chromium,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
  });
  told({ browser: browser.version(), axe: AXE });
  const devices = new Devices(asked);
  const issuer = await startIssuer(asked);
  const application = await startApplication(asked);
  try {
    await devices.prepare(issuer, application);
    await all(new Stage(browser, { ...asked, devices, issuer, application }));
  } finally {
    await browser.close();
    issuer.close();
    application.close();
  }
  told({ end: true });
}

main().catch((error) => {
  told({ failed: String(error.stack ?? error) });
  process.exitCode = 1;
});
