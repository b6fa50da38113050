import assert from 'node:assert/strict';
import { test } from 'node:test';
import { source } from './source.mjs';

const {
  frameNumbers,
  stackAsText,
  flameTreeOf,
  boxesOf,
  countOfMatches,
  waitGraphOf,
  indexOf,
  equalFrames,
  histogram,
  programFrame,
} = await source(
  'dump/stack_text.ts',
  'dump/flame_tree.ts',
  'dump/wait_graph.ts',
  'dump/index.ts',
  'dump/stack_sides.tsx',
  'views/timeline.tsx',
  'dump/program_frame.ts',
);

const frames = (...names) => names.map((name) => ({ function: name, module: 'a.out' }));
const thread = (tid, wait) => ({ tid, name: `t${tid}`, wait });
const mutex = (ownerTid, address) => ({ kind: 'MUTEX', owner: 'KNOWN', ownerTid, address });
const indexed = (threads, findings) => indexOf({ threads, findings });

test('frames are numbered as if each turn of a recursion were shown', () => {
  const stack = {
    end: 'ROOT',
    frames: [
      { function: 'a' },
      { function: 'f', repeatCount: '100', repeatLength: 1 },
      { function: 'g', repeatCount: '10', repeatLength: 2 },
      { function: 'h' },
      { function: 'main' },
    ],
  };
  assert.deepEqual(frameNumbers(stack), [0, 1, 101, 102, 121]);
  assert.match(stackAsText(stack), /^#1 {3}f \(native code\) × 100$/m);
  assert.match(stackAsText({ frames: [], end: 'UNREADABLE' }), /stack ends here: the next frame lies in memory/);
});

test('a hostile length of a recursion ends', () => {
  assert.deepEqual(frameNumbers({ frames: [{ repeatCount: '9', repeatLength: 1e9 }, {}] }), [0, 1]);
  assert.deepEqual(frameNumbers({ frames: [{ repeatCount: '9', repeatLength: -5 }, {}] }), [0, 9]);
});

test('frames of libraries that wait are not where the program is', () => {
  const stack = {
    frames: [
      { function: 'futex_wait', module: 'libc.so.6' },
      { function: 'std::mutex::lock()', module: 'a.out' },
      { function: 'Transfer', module: 'a.out' },
    ],
  };
  assert.equal(programFrame(stack).function, 'Transfer');
  assert.equal(
    programFrame({ frames: [{ function: 'spin', origin: 'RUNTIME', language: 'PYTHON' }] }).function,
    'spin',
  );
});

test('the tree counts threads and tasks, outermost first', () => {
  const groups = [
    { threadCount: 3, stack: { frames: frames('read', 'work', 'main') } },
    { threadCount: 1, taskCount: '4', stack: { frames: frames('write', 'work', 'main') } },
    { threadCount: 9, isAgent: true, stack: { frames: frames('agent') } },
  ];
  const root = flameTreeOf(groups, 'threads', '');
  assert.equal(root.count, 4);
  assert.deepEqual(
    root.children[0].children[0].children.map((node) => [node.name, node.count]),
    [
      ['read', 3],
      ['write', 1],
    ],
  );
  assert.equal(flameTreeOf(groups, 'tasks', '').count, 4);
  assert.equal(
    countOfMatches(root, (node) => node.name.includes('r')),
    4,
  );
  assert.equal(
    countOfMatches(root, (node) => node.name === 'write'),
    1,
  );
  const boxes = boxesOf(root.children[0].children[0], 0.3);
  assert.deepEqual(
    boxes.map((box) => [box.node.name, box.left, box.width]),
    [
      ['all', 0, 1],
      ['main', 0, 1],
      ['work', 0, 1],
      ['read', 0, 0.75],
    ],
  );
});

test('boxes too narrow to be drawn are one box together', () => {
  const groups = Array.from({ length: 1000 }, (_, i) => ({
    threadCount: 1,
    stack: { frames: frames(`f${i}`, 'main') },
  }));
  const boxes = boxesOf(flameTreeOf(groups, 'threads', ''), 0.01);
  assert.deepEqual(
    boxes.map((box) => [box.node.name, box.narrowCount, box.width]),
    [
      ['all', 0, 1],
      ['main', 0, 1],
      ['main', 1000, 1],
    ],
  );
});

test('threads that wait for the same are one node, those in the circle never', () => {
  const waiting = Array.from({ length: 50 }, (_, i) => thread(100 + i, mutex(1, '0xa')));
  const graph = waitGraphOf(
    indexed(
      [thread(1, mutex(2, '0xb')), thread(2, mutex(1, '0xa')), ...waiting],
      [
        {
          kind: 'DEADLOCK',
          severity: 'HANG',
          edges: [
            { waiterTid: 1, ownerTid: 2 },
            { waiterTid: 2, ownerTid: 1 },
          ],
          tids: [1, 2],
        },
      ],
    ),
  );
  assert.deepEqual(graph.nodes.map((node) => [node.title, node.isInCircle]).sort(), [
    ['50 threads', false],
    ['t1', true],
    ['t2', true],
  ]);
  assert.equal(graph.edges.filter((edge) => edge.isInCircle).length, 2);
  assert.equal(graph.leftOutCount, 0);
});

test('a picture has an end, and what found no place is counted', () => {
  const chain = Array.from({ length: 1000 }, (_, i) => thread(i + 1, mutex(i + 2, `0x${i}`)));
  const graph = waitGraphOf(indexed(chain, []));
  assert.ok(graph.nodes.length <= 32);
  assert.equal(graph.edges.length + graph.leftOutCount, 1000);
});

test('a lock without an owner is a node where threads hang on it', () => {
  const wait = { kind: 'MUTEX', owner: 'GONE', address: '0xa' };
  const graph = waitGraphOf(
    indexed([thread(1, wait), thread(2, wait)], [{ kind: 'ABANDONED_LOCK', severity: 'HANG', tids: [1, 2] }]),
  );
  assert.deepEqual(
    graph.nodes.map((node) => node.title),
    ['2 threads', 'mutex 0xa'],
  );
  assert.equal(graph.nodes[1].subtitle, 'owner is gone');
  assert.deepEqual(waitGraphOf(indexed([thread(1, wait)], [])).nodes, []);
});

test('threads that wait for others to end are no picture by themselves', () => {
  const join = { kind: 'JOIN', owner: 'KNOWN', ownerTid: 2 };
  assert.deepEqual(waitGraphOf(indexed([thread(1, join), thread(2)], [])).edges, []);
  assert.equal(waitGraphOf(indexed([thread(1, join), thread(2, mutex(3, '0xa'))], [])).edges.length, 2);
});

test('stacks of two dumps are equal from the outermost frame on', () => {
  assert.equal(equalFrames(frames('a', 'c', 'd'), frames('b', 'c', 'd')), 2);
  assert.equal(equalFrames(frames('a'), []), 0);
});

test('a time outside of the span stands at its end', () => {
  assert.deepEqual(histogram([-5, 0, 5, 10, 99], 0, 10, 2), [2, 3]);
  assert.deepEqual(histogram([7, 7], 7, 7, 2), [2, 0]);
});
