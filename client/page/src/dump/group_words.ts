// A group of threads with equal stacks, in the words of the daemon's text.
import type { StackGroup, Wait } from '../messages';
import { count, durationInWords, grouped, secondsOf, taskNoun } from '../text/wording';
import type { DumpIndex } from './index';
import { placeInProgram } from './program_frame';

const MAX_NAMES = 6;

// "2 threads", "1 thread and 3 goroutines"
export function membersInWords(group: StackGroup): string {
  const parts: string[] = [];
  if (group.threadCount) parts.push(count(group.threadCount, 'thread'));
  if (Number(group.taskCount ?? 0) > 0)
    parts.push(count(group.taskCount ?? 0, taskNoun(group.stack?.frames?.[0]?.language)));
  return parts.join(' and ');
}

export function namesInWords(group: StackGroup): string {
  const names = (group.threadNames ?? []).map((name) => name || '(no name)');
  const shown = names.slice(0, MAX_NAMES).map((name) => name.slice(0, 80));
  return names.length > MAX_NAMES
    ? `${shown.join(', ')} and ${grouped(names.length - MAX_NAMES)} more`
    : shown.join(', ');
}

export function placeOfGroup(group: StackGroup): string {
  return placeInProgram(group.stack) || '(no frame)';
}

// What its threads wait for, most frequent first; else their states.
export function waitsOfGroup(index: DumpIndex, group: StackGroup): string {
  const counts = new Map<string, number>();
  let longest: Wait['duration'];
  for (const tid of group.tids ?? []) {
    const wait = index.threads.get(tid)?.wait;
    if (wait?.explanation === undefined || wait.kind === 'SYSTEM_CALL') continue;
    counts.set(wait.explanation, (counts.get(wait.explanation) ?? 0) + 1);
    if (secondsOf(wait.duration) > secondsOf(longest)) longest = wait.duration;
  }
  if (counts.size === 0) return (group.states ?? []).slice(0, 4).join(', ');
  const [[first, firstCount] = ['', 0], ...others] = [...counts].sort((a, b) => b[1] - a[1]);
  let text = counts.size > 1 ? `${first} (${firstCount})` : first;
  if (others.length > 0) text += ` and ${grouped(others.length)} more`;
  return longest === undefined ? text : `${text}; for ${durationInWords(longest)}`;
}

// Everything that a search of groups looks at, in small letters.
export function searchedText(index: DumpIndex, group: StackGroup): string {
  const frames = (group.stack?.frames ?? []).map(
    (frame) => `${frame.function ?? ''} ${frame.file ?? ''} ${frame.module ?? ''}`,
  );
  const tids = (group.tids ?? []).slice(0, 10_000).join(' ');
  return [tids, ...(group.threadNames ?? []), ...(group.states ?? []), waitsOfGroup(index, group), ...frames]
    .join('\n')
    .toLowerCase();
}
