// How the stack of a thread was read, or why there is none.
import type { Thread } from '../messages';
import { durationInWords, enumInWords } from '../text/wording';

export function howRead(thread: Thread): string {
  if (thread.readAsleep) return 'asleep, without a signal';
  if (thread.status === 'CAPTURED')
    return thread.pause === undefined ? 'captured' : `by signal, paused ${durationInWords(thread.pause)}`;
  const status = enumInWords(thread.status);
  if (thread.stack !== undefined) return `${status}; read by another thread`;
  return thread.waitChannel ? `${status} (kernel: ${thread.waitChannel})` : status;
}
