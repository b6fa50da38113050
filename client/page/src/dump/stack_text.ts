// A stack as text to paste into a ticket.
import type { Stack } from '../messages';
import { printable } from '../text/printable';
import { bytesInWords, grouped, languageInWords } from '../text/wording';
import { frameInWords } from './program_frame';

const ENDS: Record<string, string> = {
  TRUNCATED: 'only its innermost part was copied, and the copy ends here',
  UNREADABLE: 'the next frame lies in memory that was not copied',
  NO_UNWIND_INFO: 'code without unwind information',
  NO_PROGRESS: 'the next frame does not lie nearer to the top of the stack',
  BAD_RETURN_ADDRESS: 'the next return address is outside all code',
  FRAME_LIMIT: 'it has more frames than are unwound',
  UNKNOWN_REGISTER:
    'it was read while the thread slept, and the next frame depends on a register that only a signal shows',
};

// Why the stack ends early; empty where it is whole.
export function endInWords(stack: Stack): string {
  return stack.end === 'ROOT' ? '' : (ENDS[stack.end ?? ''] ?? 'unknown reason');
}

export function gapInWords(stack: Stack): string {
  return `${bytesInWords(stack.omittedBytes ?? 0)} of the stack are not shown here: not copied`;
}

// Numbers of the frames as if all turns of a recursion were shown.
export function frameNumbers(stack: Stack): number[] {
  const frames = stack.frames ?? [];
  const numbers: number[] = [];
  let next = 0;
  while (numbers.length < frames.length) {
    const first = frames[numbers.length];
    const times = Number(first?.repeatCount ?? 0);
    const length = times > 0 ? Math.min(Math.max(first?.repeatLength ?? 1, 1), frames.length - numbers.length) : 1;
    for (let i = 0; i < length; i += 1) numbers.push(next + i);
    next += length * Math.max(times, 1);
  }
  return numbers;
}

export function stackAsText(stack: Stack): string {
  const numbers = frameNumbers(stack);
  const lines = (stack.frames ?? []).map((frame, i) => {
    const times = frame.repeatCount ? ` × ${grouped(frame.repeatCount)}` : '';
    const inlined = frame.origin === 'INLINED' ? ' [inlined]' : '';
    const text = `${frameInWords(frame)} (${frame.module || languageInWords(frame.language)})${inlined}${times}`;
    return `#${String(numbers[i]).padEnd(3)} ${printable(text)}`;
  });
  const end = endInWords(stack);
  return [...lines, ...(end === '' ? [] : [`(stack ends here: ${end})`])].join('\n');
}
