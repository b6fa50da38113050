// Dumps that the store could not take: the answer of CreateDump is the only copy, kept as long as the page is open.
import { call } from './api';
import type { Dump } from './messages';

const kept = new Map<string, Dump>();

export function keepIfNotStored(dump: Dump): void {
  if (!dump.stored && dump.name !== undefined) kept.set(dump.name, dump);
}

export async function loadDump(name: string, frames: string, signal: AbortSignal): Promise<Dump> {
  return kept.get(name) ?? (await call('GetDump', { name, frames }, signal));
}
