// Dumps made by hand, for what no real process shows in a test: many threads, hostile names.

export const PROCESS = {
  name: 'processes/2686-673551',
  pid: 2686,
  displayName: 'orders',
  executable: '/srv/demo_orders',
  argv0: 'demo_orders',
  hostname: 'vm',
  uid: 1000,
  startTime: '2026-11-23T20:42:45Z',
  connectTime: '2026-11-23T20:42:45Z',
  threadCount: 21,
  share: 'NAMES',
};

const frame = (name, file, line, module, more = {}) => ({
  function: name,
  file,
  line,
  module,
  address: '0x7f1200001234',
  moduleOffset: '0x1234',
  origin: 'CFI',
  language: 'C_CPP',
  ...more,
});

const LOCKING = [
  frame('futex_wait', '/usr/src/futex-internal.h', 146, 'libc.so.6', { origin: 'INLINED' }),
  frame('___pthread_mutex_lock', '/usr/src/pthread_mutex_lock.c', 93, 'libc.so.6'),
  frame('std::mutex::lock()', '/usr/include/c++/12/bits/std_mutex.h', 100, 'demo_orders', { origin: 'INLINED' }),
];
const ROOT = [
  frame('start_thread', 'pthread_create.c', 442, 'libc.so.6'),
  frame('clone3', 'clone3.S', 81, 'libc.so.6'),
];

// Frames as short as they can be: 10,000 stacks have to fit into an answer of 4 MiB.
const shortStack = (i) => ({ frames: [{ function: `work_${i}`, module: 'many' }], end: 'ROOT' });
const longStack = () => ({
  frames: [
    ...LOCKING,
    ...Array.from({ length: 14 }, (_, i) => frame(`step_${i}(int)`, 'steps.cc', i + 1, 'many')),
    ...ROOT,
  ],
  end: 'ROOT',
});

// A dump of `count` threads, no two of which have the same stack if `areDistinct`.
export function manyThreads(count, areDistinct) {
  const stacks = Array.from({ length: areDistinct ? count : 1 }, (_, i) => (areDistinct ? shortStack(i) : longStack()));
  const wait = { kind: 'CONDITION_VARIABLE', owner: 'NONE', explanation: 'waits on a condition variable' };
  const threads = Array.from({ length: count }, (_, i) => ({
    tid: 1000 + i,
    name: `worker-${i}`,
    status: 'CAPTURED',
    state: 'in futex',
    stack: areDistinct ? i : 0,
    ...(areDistinct ? {} : { readAsleep: true, wait }),
  }));
  const groups = stacks.map((stack, i) => {
    const members = areDistinct ? [threads[i]] : threads;
    return {
      threadCount: members.length,
      fingerprint: String(i).padStart(32, '0'),
      tids: members.map(({ tid }) => tid),
      threadNames: members.slice(0, 20).map(({ name }) => name),
      stack,
      states: ['in futex'],
    };
  });
  return {
    name: 'processes/77-1/dumps/20261123T204248698Z-1',
    process: { ...PROCESS, name: 'processes/77-1', displayName: 'many', threadCount: count },
    trigger: 'REQUEST',
    state: 'COMPLETE',
    createTime: '2026-11-23T20:42:48.698Z',
    captureDuration: '0.060s',
    threadCounts: { listed: count, captured: count },
    stored: true,
    groups,
    threads,
    stacks,
    findings: [{ kind: 'IDLE', severity: 'HARMLESS', explanation: `${count} threads are idle` }],
  };
}

// The same message with `text` in place of each of its texts, but for enums, times and names of resources.
export function withText(message, text) {
  const kept = new Set([
    'kind',
    'severity',
    'status',
    'state',
    'trigger',
    'owner',
    'origin',
    'language',
    'end',
    'share',
    'cause',
    'verdict',
    'change',
    'createTime',
    'startTime',
    'connectTime',
    'firstSeenTime',
    'lastSeenTime',
    'captureDuration',
    'duration',
    'between',
    'cpuTime',
    'pause',
    'median',
    'p99',
    'max',
    'before',
    'after',
    'fingerprint',
    'dumps',
    'parent',
    'nextPageToken',
  ]);
  const change = (value, key, inside) => {
    if (Array.isArray(value)) return value.map((one) => change(one, key, inside));
    if (value !== null && typeof value === 'object')
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, change(one, name, key)]));
    const isResourceName = key === 'name' && typeof value === 'string' && /^(processes|stackGroups)\//.test(value);
    if (
      typeof value !== 'string' ||
      isResourceName ||
      (kept.has(key) && !(key === 'state' && inside === 'threads')) ||
      /^\d+$/.test(value)
    )
      return value;
    return text;
  };
  return change(message, '', '');
}
