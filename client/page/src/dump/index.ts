// Threads of a dump by tid, and groups of the threads.
import type { Dump, Stack, StackGroup, Thread } from '../messages';

export interface DumpIndex {
  dump: Dump;
  threads: Map<number, Thread>;
  groups: Map<number, StackGroup>;
}

export function indexOf(dump: Dump): DumpIndex {
  const threads = new Map((dump.threads ?? []).map((thread) => [thread.tid ?? 0, thread]));
  const groups = new Map<number, StackGroup>();
  for (const group of dump.groups ?? []) for (const tid of group.tids ?? []) groups.set(tid, group);
  return { dump, threads, groups };
}

export function stackOf(index: DumpIndex, tid: number): Stack | undefined {
  const stack = index.threads.get(tid)?.stack;
  return stack === undefined ? undefined : index.dump.stacks?.[stack];
}

export function threadName(index: DumpIndex, tid: number): string {
  return index.threads.get(tid)?.name || 'thread';
}
