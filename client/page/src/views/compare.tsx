// Two dumps of one process side by side: who has moved, who used the processor, and what that means.
import { useMemo, useState } from 'preact/hooks';
import { call } from '../api';
import { Findings } from '../dump/findings';
import { type DumpIndex, indexOf, stackOf } from '../dump/index';
import { SidesOfStack } from '../dump/stack_sides';
import { loadDump } from '../kept_dumps';
import type { DumpComparison, ThreadComparison } from '../messages';
import { addressOfDump, nameOfDump, type Route } from '../route';
import { count, durationInWords, enumInWords, grouped, timeInWords } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { useAnswer } from '../use_answer';

interface Compared {
  comparison: DumpComparison;
  before: DumpIndex;
  after: DumpIndex;
}

const VERDICTS: Record<string, string> = { DEADLOCKED: 'hang', SPINNING: 'hang', STUCK: 'hang', SLOW: 'suspicious' };

async function load(before: string, after: string, signal: AbortSignal): Promise<Compared> {
  const comparison = await call('CompareDumps', { before, after }, signal);
  const get = async (name: string | undefined) => indexOf(await loadDump(name ?? '', 'ALL_FRAMES', signal));
  const [first, second] = await Promise.all([get(comparison.before), get(comparison.after)]);
  return { comparison, before: first, after: second };
}

function VerdictMark(props: { verdict: string | undefined }) {
  return (
    <strong class={`severity ${VERDICTS[props.verdict ?? ''] ?? 'harmless'}`}>{enumInWords(props.verdict)}</strong>
  );
}

function OneThread(props: { thread: ThreadComparison; compared: Compared }) {
  const { thread, compared } = props;
  const [isOpen, setOpen] = useState(false);
  const tid = thread.tid ?? 0;
  return (
    <details class="group compared" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary data-row>
        <span class="members-count">
          <Text value={thread.name || '(no name)'} max={40} /> <span class="dim">{tid}</span>
        </span>
        <span>
          <VerdictMark verdict={thread.verdict} /> <span class="dim">{enumInWords(thread.change)}</span>
        </span>
        <Text value={thread.explanation} max={240} />
        <span class="dim">
          {thread.cpuTime === undefined ? 'no CPU time' : `${durationInWords(thread.cpuTime)} of CPU time`}
        </span>
      </summary>
      {isOpen && <SidesOfStack before={stackOf(compared.before, tid)} after={stackOf(compared.after, tid)} />}
    </details>
  );
}

function Threads(props: { compared: Compared }) {
  const { compared } = props;
  const [search, setSearch] = useState('');
  const threads = compared.comparison.threads ?? [];
  const found = useMemo(() => {
    const sought = search.toLowerCase();
    const has = (thread: ThreadComparison) =>
      `${thread.tid} ${thread.name} ${enumInWords(thread.change)} ${enumInWords(thread.verdict)} ${thread.explanation}`
        .toLowerCase()
        .includes(sought);
    return sought === '' ? threads : threads.filter(has);
  }, [threads, search]);
  const list = useGrowing(found, 60);
  const omitted = compared.comparison.omittedThreadCount ?? 0;
  return (
    <section aria-labelledby="threads">
      <h2 id="threads">Threads</h2>
      <div class="tools">
        <SearchField label="Search name, tid, moved, unchanged" value={search} onInput={setSearch} />
        <span class="dim" role="status">
          {search === ''
            ? count(threads.length, 'thread')
            : `${grouped(found.length)} of ${count(threads.length, 'thread')}`}
        </span>
      </div>
      {found.length === 0 && <Empty>No thread has this text.</Empty>}
      <div class="groups">
        {list.shown.map((thread) => (
          <OneThread key={thread.tid} thread={thread} compared={compared} />
        ))}
      </div>
      <MoreButton list={list} noun="threads" />
      {omitted > 0 && <p class="dim">{count(omitted, 'more thread')} left out of this answer.</p>}
    </section>
  );
}

function Comparison(props: { compared: Compared }) {
  const { comparison, before, after } = props.compared;
  const sides = [
    { what: 'before', dump: before.dump },
    { what: 'after', dump: after.dump },
  ];
  return (
    <>
      <h1>
        <Text value={after.dump.process?.displayName || 'process'} max={80} />{' '}
        <small>{durationInWords(comparison.between)} between two dumps</small>
      </h1>
      <section class={`verdict ${VERDICTS[comparison.verdict ?? ''] ?? 'harmless'}`} aria-label="Verdict">
        <p class="said">
          <VerdictMark verdict={comparison.verdict} /> <Sentence value={comparison.explanation} />
        </p>
      </section>
      <ul class="sides">
        {sides.map(({ what, dump }) => (
          <li>
            {what}: <a href={addressOfDump(dump.name ?? '')}>{timeInWords(dump.createTime)}</a>
          </li>
        ))}
      </ul>
      <Findings findings={comparison.findings} />
      <Threads compared={props.compared} />
    </>
  );
}

export function Compare(props: { route: Route }) {
  const [, process = '', first = '-', second = ''] = props.route.path;
  // "-": the one before.
  const before = first === '-' ? '' : nameOfDump(process, first);
  const after = nameOfDump(process, second);
  const answer = useAnswer(`compare ${before} ${after}`, (signal) => load(before, after, signal));
  return (
    <Loaded answer={answer} what="the comparison">
      {(compared) => <Comparison compared={compared} />}
    </Loaded>
  );
}
