// Who waits for whom, as nodes and edges. Threads that wait for the same at the same place are one node.
import type { Thread, Wait } from '../messages';
import { type DumpIndex, stackOf, threadName } from './index';
import { placeInProgram } from './program_frame';

export interface GraphNode {
  id: string;
  tids: number[];
  // Empty for a lock whose owner is not a thread of this process.
  title: string;
  subtitle: string;
  isLock: boolean;
  isInCircle: boolean;
}

export interface GraphEdge {
  from: string;
  to: string;
  lock: string;
  where: string;
  isInCircle: boolean;
}

export interface WaitGraph {
  nodes: GraphNode[];
  edges: GraphEdge[];
  // Waiting threads that found no place in it.
  leftOutCount: number;
}

// More is no picture any more; the list below it has all.
const MAX_NODES = 32;

interface Waiting {
  tid: number;
  // "t12" is a thread, "l0x7f…" a lock without an owner that is known.
  to: string;
  lock: string;
  where: string;
  isInCircle: boolean;
  isJoin: boolean;
}

const WITHOUT_OWNER: Record<string, string> = {
  NOT_RECORDED: 'owner not recorded',
  GONE: 'owner is gone',
  NOT_KNOWN: 'owner not known',
  OTHER_PROCESS: 'held by another process',
};

// "mutex orders::savings", "mutex 0x7f12… on the heap".
export function lockInWords(wait: Wait | undefined, fallback: string): string {
  if (wait?.kind === undefined) return fallback;
  const kind = wait.kind === 'GIL' ? 'GIL' : wait.kind.toLowerCase().replaceAll('_', ' ');
  if (wait.kind === 'JOIN') return 'its end (join)';
  const variable = /^\.\S+ of [^:]*: (.+)$/s.exec(wait.place ?? '')?.[1];
  if (variable) return `${kind} ${variable}`;
  return [kind, wait.address, wait.place && `(${wait.place})`].filter((part) => part).join(' ');
}

function waitingOf(
  index: DumpIndex,
  thread: Thread,
  concerned: Set<number>,
  inCircle: Set<string>,
): Waiting | undefined {
  const { tid = 0, wait } = thread;
  if (wait === undefined || thread.isAgent) return undefined;
  const base = {
    tid,
    isJoin: wait.kind === 'JOIN',
    lock: lockInWords(wait, ''),
    where: placeInProgram(stackOf(index, tid)),
  };
  if (wait.owner === 'KNOWN')
    return { ...base, to: `t${wait.ownerTid}`, isInCircle: inCircle.has(`${tid} ${wait.ownerTid}`) };
  if (WITHOUT_OWNER[wait.owner ?? ''] === undefined || !concerned.has(tid)) return undefined;
  return { ...base, to: `l${wait.address ?? wait.explanation}`, isInCircle: false };
}

function waitingThreads(index: DumpIndex): Waiting[] {
  const serious = (index.dump.findings ?? []).filter((finding) => finding.severity !== 'HARMLESS');
  const concerned = new Set(serious.flatMap((finding) => finding.tids ?? []));
  const circles = serious.filter((finding) => finding.kind === 'DEADLOCK' || finding.kind === 'SELF_DEADLOCK');
  const inCircle = new Set(
    circles.flatMap((finding) => finding.edges ?? []).map((edge) => `${edge.waiterTid} ${edge.ownerTid}`),
  );
  const found = (index.dump.threads ?? []).flatMap((thread) => waitingOf(index, thread, concerned, inCircle) ?? []);
  // Edges that no wait of a thread says: those of goroutines, say.
  const known = new Set(found.map((waiting) => `${waiting.tid} ${waiting.to}`));
  for (const edge of serious.flatMap((finding) => finding.edges ?? [])) {
    const { waiterTid: tid = 0, ownerTid = 0 } = edge;
    if (known.has(`${tid} t${ownerTid}`)) continue;
    known.add(`${tid} t${ownerTid}`);
    found.push({
      isJoin: false,
      tid,
      to: `t${ownerTid}`,
      lock: edge.lock ?? '',
      where: placeInProgram(stackOf(index, tid)),
      isInCircle: inCircle.has(`${tid} ${ownerTid}`),
    });
  }
  // A thread that waits for others to end is what most programs have.
  return serious.length === 0 && found.every((waiting) => waiting.isJoin) ? [] : found;
}

// Waits of threads that nothing waits for, by what they wait for and where; each of the others alone.
function merged(waits: Waiting[]): Waiting[][] {
  const owners = new Set(waits.map((waiting) => waiting.to));
  const places = new Map<string, Waiting[]>();
  for (const waiting of waits) {
    const isAlone = waiting.isInCircle || owners.has(`t${waiting.tid}`);
    const key = isAlone ? `${waiting.tid} ${waiting.to}` : `\0${waiting.to}\0${waiting.lock}\0${waiting.where}`;
    const place = places.get(key);
    if (place === undefined) places.set(key, [waiting]);
    else place.push(waiting);
  }
  return [...places.values()].sort(
    (a, b) => Number(b[0]?.isInCircle) - Number(a[0]?.isInCircle) || b.length - a.length,
  );
}

function threadNode(index: DumpIndex, id: string, tids: number[], isInCircle: boolean): GraphNode {
  const first = tids[0] ?? 0;
  const names = [...new Set(tids.map((tid) => threadName(index, tid)))];
  if (tids.length > 1) {
    return {
      id,
      tids,
      title: `${tids.length} threads`,
      subtitle: names.slice(0, 3).join(', ') + (names.length > 3 ? ' …' : ''),
      isLock: false,
      isInCircle,
    };
  }
  return { id, tids, title: threadName(index, first), subtitle: `tid ${first}`, isLock: false, isInCircle };
}

function lockNode(index: DumpIndex, id: string, waiting: Waiting): GraphNode {
  const owner = index.threads.get(waiting.tid)?.wait?.owner ?? '';
  return { id, tids: [], title: waiting.lock, subtitle: WITHOUT_OWNER[owner] ?? '', isLock: true, isInCircle: false };
}

export function waitGraphOf(index: DumpIndex): WaitGraph {
  const nodes = new Map<string, GraphNode>();
  const edges: GraphEdge[] = [];
  let leftOutCount = 0;
  for (const place of merged(waitingThreads(index))) {
    const [first] = place;
    if (first === undefined) continue;
    const tids = place.map((waiting) => waiting.tid);
    const from = tids.length > 1 ? `g${first.tid}` : `t${first.tid}`;
    const newCount = Number(!nodes.has(from)) + Number(!nodes.has(first.to));
    if (nodes.size + newCount > MAX_NODES) {
      leftOutCount += tids.length;
      continue;
    }
    const own = nodes.get(from) ?? threadNode(index, from, tids, false);
    nodes.set(from, { ...own, isInCircle: own.isInCircle || first.isInCircle });
    const owner = first.to.startsWith('l')
      ? lockNode(index, first.to, first)
      : threadNode(index, first.to, [Number(first.to.slice(1))], false);
    if (!nodes.has(first.to)) nodes.set(first.to, owner);
    edges.push({ from, to: first.to, lock: first.lock, where: first.where, isInCircle: first.isInCircle });
  }
  return { nodes: [...nodes.values()], edges, leftOutCount };
}
