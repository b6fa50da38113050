// All stacks of a dump as one tree, outermost function first: what a flame graph draws.
import type { Frame, Language, StackGroup } from '../messages';
import { nameOfFrame, placeOfFrame } from './program_frame';

export interface FlameNode {
  // Number that no other node has.
  id: number;
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

let nodeCount = 0;
function newNode(frame: Frame | undefined, parent: FlameNode | undefined): FlameNode {
  nodeCount += 1;
  return {
    id: nodeCount,
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
  depth: number;
  // More than 0: this many children of `node` that are too narrow to be drawn alone.
  narrowCount: number;
}

// Boxes of the children of `box`, widest first; the narrow ones as one.
function childBoxes(box: FlameBox, whole: number, minWidth: number): FlameBox[] {
  const boxes: FlameBox[] = [];
  const { children } = box.node;
  const depth = box.depth + 1;
  let left = box.left;
  for (const node of children) {
    const width = node.count / whole;
    if (width < minWidth) break;
    boxes.push({ node, left, width, depth, narrowCount: 0 });
    left += width;
  }
  const narrowCount = children.length - boxes.length;
  const width = children.slice(boxes.length).reduce((sum, node) => sum + node.count, 0) / whole;
  if (narrowCount > 0 && width >= minWidth) boxes.push({ node: box.node, left, width, depth, narrowCount });
  return boxes;
}

// What is drawn of `focus`: its ancestors over the whole width, itself, and what is below it.
export function boxesOf(focus: FlameNode, minWidth: number): FlameBox[] {
  const boxes: FlameBox[] = [];
  const whole = { left: 0, width: 1, narrowCount: 0 };
  for (let node = focus.parent; node !== undefined; node = node.parent)
    boxes.unshift({ ...whole, node, depth: node.depth });
  const left: FlameBox[] = [{ ...whole, node: focus, depth: focus.depth }];
  for (let box = left.pop(); box !== undefined; box = left.pop()) {
    boxes.push(box);
    if (box.narrowCount === 0) left.push(...childBoxes(box, Math.max(1, focus.count), minWidth));
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
