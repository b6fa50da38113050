// All stacks of a dump as one tree, outermost function first: what a flame graph draws.
import type { Frame, Language, StackGroup } from '../messages';
import { nameOfFrame, placeOfFrame } from './program_frame';

export interface FlameNode {
  name: string;
  place: string;
  module: string;
  language: Language;
  depth: number;
  count: number;
  children: FlameNode[];
  parent: FlameNode | undefined;
}

export type Counted = 'threads' | 'tasks' | 'threads and tasks';

function newNode(frame: Frame | undefined, parent: FlameNode | undefined): FlameNode {
  return {
    name: frame === undefined ? 'all' : nameOfFrame(frame),
    place: frame === undefined ? '' : placeOfFrame(frame),
    module: frame?.module ?? '',
    language: frame?.language ?? 'LANGUAGE_UNSPECIFIED',
    depth: parent === undefined ? 0 : parent.depth + 1,
    count: 0,
    children: [],
    parent,
  };
}

function weightOf(group: StackGroup, counted: Counted): number {
  const threads = counted === 'tasks' ? 0 : (group.threadCount ?? 0);
  return threads + (counted === 'threads' ? 0 : Number(group.taskCount ?? 0));
}

function sortByCount(root: FlameNode): void {
  const left = [root];
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    node.children.sort((a, b) => b.count - a.count);
    for (const child of node.children) left.push(child);
  }
}

// The tree of the frames in `language`, or of all frames if it is empty.
export function flameTreeOf(groups: StackGroup[], counted: Counted, language: string): FlameNode {
  const root = newNode(undefined, undefined);
  const found = new Map<FlameNode, Map<string, FlameNode>>();
  for (const group of groups) {
    const weight = weightOf(group, counted);
    if (weight === 0 || group.isAgent) continue;
    root.count += weight;
    let node = root;
    const frames = group.stack?.frames ?? [];
    for (let i = frames.length - 1; i >= 0; i -= 1) {
      const frame = frames[i];
      if (frame === undefined || (language !== '' && frame.language !== language)) continue;
      node = childOf(node, frame, found);
      node.count += weight;
    }
  }
  sortByCount(root);
  return root;
}

function childOf(node: FlameNode, frame: Frame, found: Map<FlameNode, Map<string, FlameNode>>): FlameNode {
  let children = found.get(node);
  if (children === undefined) {
    children = new Map();
    found.set(node, children);
  }
  const key = `${frame.function ?? frame.address}\0${frame.module}`;
  const known = children.get(key);
  if (known !== undefined) return known;
  const child = newNode(frame, node);
  children.set(key, child);
  node.children.push(child);
  return child;
}

export interface FlameBox {
  node: FlameNode;
  // Parts of the whole width.
  left: number;
  width: number;
}

// What is drawn of `focus`: its ancestors over the whole width, itself, and below it what is not narrower than `minWidth`.
export function boxesOf(focus: FlameNode, minWidth: number): FlameBox[] {
  const boxes: FlameBox[] = [];
  for (let node = focus.parent; node !== undefined; node = node.parent) boxes.unshift({ node, left: 0, width: 1 });
  const left: FlameBox[] = [{ node: focus, left: 0, width: 1 }];
  for (let box = left.pop(); box !== undefined; box = left.pop()) {
    boxes.push(box);
    let at = box.left;
    for (const node of box.node.children) {
      const width = focus.count === 0 ? 0 : node.count / focus.count;
      if (width >= minWidth) left.push({ node, left: at, width });
      at += width;
    }
  }
  return boxes;
}

// How many threads or tasks are below nodes whose name holds `sought`, each counted once.
export function countOfMatches(root: FlameNode, matches: (node: FlameNode) => boolean): number {
  let sum = 0;
  const left = [root];
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    if (node !== root && matches(node)) sum += node.count;
    else for (const child of node.children) left.push(child);
  }
  return sum;
}
