// What could not be captured, unwound, named or stored, and why.
import type { Dump, Thread } from '../messages';
import { bytesInWords, count, enumInWords, languageInWords } from '../text/wording';
import { Sentence, Text } from '../ui/text';

const MAX_THREADS = 10;

function withoutStack(dump: Dump): [string, Thread[]][] {
  const states = new Map<string, Thread[]>();
  for (const thread of dump.threads ?? []) {
    if (thread.stack !== undefined) continue;
    const state = thread.state || enumInWords(thread.status);
    states.set(state, [...(states.get(state) ?? []), thread]);
  }
  return [...states];
}

function threadsInWords(threads: Thread[]): string {
  const shown = threads
    .slice(0, MAX_THREADS)
    .map((thread) => `${(thread.name || '(no name)').slice(0, 60)} (tid ${thread.tid})`);
  return threads.length > MAX_THREADS
    ? `${shown.join(', ')} and ${count(threads.length - MAX_THREADS, 'more thread')}`
    : shown.join(', ');
}

export function notesCount(dump: Dump): number {
  const problems = (dump.runtimes ?? []).filter((runtime) => runtime.problem).length;
  return (dump.notes ?? []).length + (dump.process?.limits ?? []).length + problems + withoutStack(dump).length;
}

export function Notes(props: { dump: Dump }) {
  const { dump } = props;
  return (
    <>
      <ul class="notes">
        {(dump.notes ?? []).map((note) => (
          <li>
            <Sentence value={note} />
          </li>
        ))}
        {(dump.process?.limits ?? []).map((limit) => (
          <li>
            <Sentence value={limit} />
          </li>
        ))}
        {(dump.runtimes ?? [])
          .filter((runtime) => runtime.problem)
          .map((runtime) => (
            <li>
              <Text value={runtime.name || languageInWords(runtime.language)} />: <Sentence value={runtime.problem} />
            </li>
          ))}
        {withoutStack(dump).map(([state, threads]) => (
          <li>
            No stack, <Text value={state} />: <Text value={threadsInWords(threads)} max={1000} />
          </li>
        ))}
      </ul>
      {notesCount(dump) === 0 && <p class="well">Nothing is missing.</p>}
      <p class="dim">
        {bytesInWords(dump.memoryReadBytes ?? 0)} of the process's memory were read for this dump. Nothing of it is kept
        but what is shown here.
      </p>
      {(dump.reports ?? []).map((report) => (
        <details>
          <summary data-row>
            <Text value={report.title} />
          </summary>
          <pre>
            {(report.lines ?? []).slice(0, 2000).map((line) => (
              <>
                <Text value={line} max={1000} />
                {'\n'}
              </>
            ))}
          </pre>
        </details>
      ))}
    </>
  );
}
