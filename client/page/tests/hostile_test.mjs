// Names that hold HTML, ANSI, bidi controls or a MiB of text harm no view.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, answersOf, dumpWhere, gatewayAnswersOf, RECORDED } from './answers.mjs';
import { closeBrowser, withPage } from './browser.mjs';
import { withText } from './made.mjs';

after(closeBrowser);

const MARKUP = `<img src=x onerror="violated('ran')"><script>violated('ran')</script>"'&amp;</title><a href="javascript:violated('ran')">x</a>`;
const TEXTS = {
  markup: MARKUP,
  'terminal controls': '\x1b[31mred\x1b]8;;https://example.invalid\x07link\x1b[2J\r\n\t\0end',
  'bidi controls': 'user\u202egnp.exe\u2066\u2069\u200f\u061c مرحبا שלום',
  'a MiB': `begin${'W'.repeat(1 << 20)}`,
  'a name of every object': '__proto__',
};

const dump = dumpWhere(RECORDED, (one) => one.process.displayName === 'gateway');
const deadlock = dumpWhere(RECORDED, (one) => one.process.displayName === 'orders' && one.trigger === 'HANG');
const crash = dumpWhere(RECORDED, (one) => one.trigger === 'CRASH');

// What a recording would be, were each text in it the hostile one; only the dumps that are opened, for a MiB is large.
function hostileRecording(text) {
  const long = text.length > 1e5;
  const part = (one) =>
    long
      ? {
          ...one,
          threads: one.threads.slice(0, 4),
          groups: one.groups.slice(0, 2),
          modules: one.modules?.slice(0, 1),
          stacks: one.stacks.slice(0, 1),
        }
      : one;
  const shortened = (one) =>
    long
      ? {
          ...one,
          groups: one.groups.map((group) => ({
            ...group,
            stack: { ...group.stack, frames: group.stack.frames.slice(0, 2) },
            threadNames: group.threadNames?.slice(0, 2),
          })),
        }
      : one;
  const full = [dump, deadlock, crash].map((one) => withText(shortened(part(one)), text));
  const basic = full.map(({ groups, threads, stacks, modules, ...rest }) => rest);
  const some = (list) => (long ? list.slice(0, 2) : list);
  const groups = {
    CRASH: some(RECORDED.groups.CRASH).map((one) => withText(one, text)),
    HANG: some(RECORDED.groups.HANG).map((one) => withText(one, text)),
  };
  const [first] = RECORDED.groups.CRASH;
  return {
    processes: some(RECORDED.processes).map((one) => withText(one, text)),
    dumps: basic,
    full: Object.fromEntries(
      [...full, ...[RECORDED.comparison.before, RECORDED.comparison.after].map((name) => ({ ...full[0], name }))].map(
        (one) => [one.name, one],
      ),
    ),
    text: [text],
    groups,
    group: {
      [first.fingerprint]: withText(
        {
          ...RECORDED.group[first.fingerprint],
          fingerprintFrames: some(RECORDED.group[first.fingerprint].fingerprintFrames),
        },
        text,
      ),
    },
    comparison: withText({ ...RECORDED.comparison, threads: some(RECORDED.comparison.threads) }, text),
    daemon: { ...withText(RECORDED.daemon, text), counters: { [text.slice(0, 1 << 20)]: '1' }, problems: [text] },
  };
}

function attributes(one) {
  return {
    ...one,
    resourceAttributes: {
      'k8s.pod.name': one.displayName,
      'service.version': one.displayName,
      'k8s.namespace.name': one.displayName,
    },
  };
}

const [, comparedProcess, , comparedDump] = RECORDED.comparison.after.split('/');
const VIEWS = {
  processes: '#/processes',
  dumps: '#/dumps',
  stacks: addressOf(dump),
  'wait graph': addressOf(deadlock),
  threads: `${addressOf(deadlock)}?tab=threads`,
  tasks: `${addressOf(dump)}?tab=tasks`,
  'flame graph': `${addressOf(dump)}?tab=flame`,
  notes: `${addressOf(crash)}?tab=notes`,
  modules: `${addressOf(dump)}?tab=modules`,
  groups: '#/groups',
  'one group': `#/groups/${RECORDED.groups.CRASH[0].fingerprint}`,
  comparison: `#/compare/${comparedProcess}/-/${comparedDump}`,
  daemon: '#/daemon',
};

// In the page: what the hostile text has become.
function inspect() {
  const main = document.querySelector('main');
  const titles = [...main.querySelectorAll('[title]')].map((element) => element.title);
  const all = `${main.textContent}\n${titles.join('\n')}`;
  return {
    made: main.querySelectorAll('img, script, iframe, a[href^="javascript"], b').length,
    obeyed: /[\p{Cc}\p{Bidi_Control}]/u.test(all.replaceAll('\n', '')),
    longest: Math.max(
      ...[...main.querySelectorAll('*')]
        .flatMap((element) => [...element.childNodes])
        .map((node) => (node.nodeType === 3 ? node.data.length : 0)),
      ...titles.map((title) => title.length),
    ),
    width: document.documentElement.scrollWidth,
    seen: all.length,
  };
}

// How each text begins where it is shown.
const BEGINS = {
  markup: '<img src=x',
  'terminal controls': '\\x1b[31mred',
  'bidi controls': 'user\\u{202e}gnp',
  'a MiB': 'beginWWW',
  'a name of every object': '__proto__',
};

async function assertHarmless(page, begin) {
  await page.locator('main h1').waitFor();
  await page.waitForFunction(() => document.querySelector('main [aria-busy]') === null);
  const closed = page.locator('main details:not([open]) > summary');
  while ((await closed.count()) > 0) await closed.first().click();
  const seen = await page.evaluate(inspect);
  assert.equal(seen.made, 0, 'no element is made of a text');
  assert.ok(!seen.obeyed, 'no control character is left');
  assert.ok(seen.longest <= 2100, `${seen.longest} characters in one text`);
  assert.ok(seen.width <= 1280, `${seen.width} px wide`);
  assert.ok((await page.locator('main').textContent()).includes(begin), 'it is shown as text');
}

for (const [kind, text] of Object.entries(TEXTS)) {
  test(`${kind} in names harms no view`, async (context) => {
    const recording = hostileRecording(text);
    recording.processes = recording.processes.map(attributes);
    const answers = answersOf(recording);
    answers.ListStackGroups = ({ kind: of }) => ({ stackGroups: recording.groups[of] });
    await withPage({ answers }, async (page, server) => {
      for (const [view, address] of Object.entries(VIEWS)) {
        await context.test(view, async () => {
          await page.goto('about:blank');
          await page.goto(server.url + address);
          await assertHarmless(page, BEGINS[kind]);
        });
      }
    });
  });
}

for (const [kind, text] of Object.entries(TEXTS)) {
  test(`${kind} in history harms no view`, () => {
    const whole = gatewayAnswersOf();
    const [group] = whole.ListCrashes().groups;
    const hostile = withText({ ...group, pods: group.pods.slice(0, 1), dumps: group.dumps.slice(0, 1) }, text);
    const names = [{ name: text, count: '1' }];
    const groups = [{ ...hostile, cause: text, services: names, versions: names, pods: names }];
    const answers = { ...whole, ListCrashes: () => ({ groups, notes: [text] }), ListHangs: () => ({}) };
    return withPage({ answers }, (page) => assertHarmless(page, BEGINS[kind]));
  });
}

test('an address that holds markup is a view that does not exist', () =>
  withPage(
    { answers: answersOf(), address: `#/${encodeURIComponent(MARKUP)}?tab=${encodeURIComponent(MARKUP)}` },
    async (page) => {
      await page.getByText('There is no such view.').waitFor();
      assert.equal(await page.locator('main img').count(), 0);
    },
  ));

test('an error whose message is hostile is shown as text', () => {
  const answers = {
    ...answersOf(),
    GetDump: () => {
      throw Object.assign(new Error(MARKUP), { status: 404, code: 'not_found' });
    },
  };
  return withPage({ answers, address: addressOf(dump), expectErrors: true }, async (page) => {
    await page.getByRole('alert').getByText('<img src=x').waitFor();
    assert.equal(await page.locator('main img').count(), 0);
  });
});
