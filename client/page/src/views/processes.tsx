// Processes with an agent, those that hang or crashed first: the first screen says what is wrong.
import { call } from '../api';
import { SeverityMark } from '../dump/findings';
import type { Dump, Process } from '../messages';
import { addressOfDump, formatRoute, type Route, replaceQuery } from '../route';
import { count, grouped, millisecondsOf, placeInWords } from '../text/wording';
import { DumpButton } from '../ui/dump_button';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';
import { verdictOf } from './verdict';

const POLL_MS = 3000;
const MAX_PAGES = 10;
const RECENT_MS = 24 * 3600 * 1000;

interface Seen {
  processes: Process[];
  isCut: boolean;
  // The newest dumps of all processes, newest first.
  dumps: Dump[];
}

async function listProcesses(signal: AbortSignal): Promise<{ processes: Process[]; isCut: boolean }> {
  const processes: Process[] = [];
  let pageToken = '';
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const answer = await call('ListProcesses', { pageSize: 1000, pageToken }, signal);
    processes.push(...(answer.processes ?? []));
    pageToken = answer.nextPageToken ?? '';
    if (pageToken === '') break;
  }
  return { processes, isCut: pageToken !== '' };
}

async function load(signal: AbortSignal): Promise<Seen> {
  const [listed, newest] = await Promise.all([listProcesses(signal), call('ListDumps', { pageSize: 200 }, signal)]);
  return { ...listed, dumps: newest.dumps ?? [] };
}

interface Row {
  process: Process;
  dump: Dump | undefined;
  isGone: boolean;
}

const RANKS: Record<string, number> = { HANG: 0, CRASH: 1, SUSPICIOUS: 2 };

function rowsOf(seen: Seen): Row[] {
  const newest = new Map<string, Dump>();
  for (const dump of seen.dumps) {
    const name = dump.process?.name ?? '';
    if (!newest.has(name)) newest.set(name, dump);
  }
  const rows: Row[] = seen.processes.map((process) => ({
    process,
    dump: newest.get(process.name ?? ''),
    isGone: false,
  }));
  const here = new Set(seen.processes.map((process) => process.name));
  for (const [name, dump] of newest) {
    const isRecent = Date.now() - millisecondsOf(dump.createTime) < RECENT_MS;
    if (!here.has(name) && dump.crash && isRecent) rows.push({ process: dump.process ?? {}, dump, isGone: true });
  }
  const rank = (row: Row) => RANKS[verdictOf(row.dump).severity] ?? 3;
  const newestFirst = (row: Row) => -(millisecondsOf(row.dump?.createTime) || 0);
  return rows.sort((a, b) => rank(a) - rank(b) || newestFirst(a) - newestFirst(b));
}

function has(row: Row, sought: string): boolean {
  const { process } = row;
  const attributes = Object.values(process.resourceAttributes ?? {});
  return [process.displayName, process.executable, process.hostname, String(process.pid), ...attributes]
    .join('\n')
    .toLowerCase()
    .includes(sought);
}

function State(props: { row: Row }) {
  const { dump, isGone } = props.row;
  const { severity, sentence } = verdictOf(dump);
  if (dump === undefined) return <span class="dim">not dumped yet</span>;
  return (
    <>
      {severity === '' ? (
        <span class="dim">{isGone ? 'gone' : 'no hang known'}</span>
      ) : (
        <SeverityMark severity={severity} />
      )}{' '}
      <a data-row href={addressOfDump(dump.name ?? '')}>
        {sentence === '' ? 'last dump' : <Sentence value={sentence} />}
      </a>{' '}
      <span class="dim">
        <Ago time={dump.createTime} />
      </span>
    </>
  );
}

function ProcessRow(props: { row: Row }) {
  const { process, isGone } = props.row;
  const name = process.displayName || '(no name)';
  return (
    <tr class={verdictOf(props.row.dump).severity.toLowerCase()}>
      <th scope="row">
        <a href={formatRoute(['dumps'], { parent: process.name ?? '' })}>
          <Text value={name} max={80} />
        </a>
        <div class="dim">
          <Text value={placeInWords(process)} max={160} />
        </div>
      </th>
      <td class="wide">
        <State row={props.row} />
        {(process.limits ?? []).slice(0, 3).map((limit) => (
          <div class="dim">
            Limit: <Sentence value={limit} />
          </div>
        ))}
      </td>
      <td class="number">{process.threadCount === undefined ? '' : grouped(process.threadCount)}</td>
      <td>{isGone ? 'gone' : <Ago time={process.startTime} />}</td>
      <td>{!isGone && <DumpButton process={process.name ?? ''} title={name.slice(0, 80)} />}</td>
    </tr>
  );
}

function Headline(props: { rows: Row[] }) {
  const countOf = (severity: string) => props.rows.filter((row) => verdictOf(row.dump).severity === severity).length;
  const hangs = countOf('HANG');
  const crashes = countOf('CRASH');
  const doubtful = countOf('SUSPICIOUS');
  const parts = [
    hangs > 0 && `${count(hangs, 'process', 'processes')} with a hang`,
    crashes > 0 && `${count(crashes, 'crash', 'crashes')} in the last day`,
    doubtful > 0 && `${grouped(doubtful)} suspicious`,
  ].filter((part) => part);
  return parts.length === 0 ? (
    <p class="well">No hang and no crash is known.</p>
  ) : (
    <p class={hangs + crashes > 0 ? 'headline hang' : 'headline suspicious'}>{parts.join(', ')}.</p>
  );
}

function Table(props: { seen: Seen; search: string; onSearch: (text: string) => void }) {
  const rows = rowsOf(props.seen);
  const sought = props.search.toLowerCase();
  const found = sought === '' ? rows : rows.filter((row) => has(row, sought));
  const list = useGrowing(found, 100);
  return (
    <>
      <Headline rows={rows} />
      <div class="tools">
        <SearchField label="Search name, host, pod" value={props.search} onInput={props.onSearch} />
        <span class="dim">{count(props.seen.processes.length, 'process', 'processes')} connected</span>
      </div>
      {found.length === 0 ? (
        <Empty>
          {sought === ''
            ? 'No agent is connected. Start a program with LD_PRELOAD=…/libstackd_agent.so and STACKD_DIR of this daemon.'
            : 'No process has this text.'}
        </Empty>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">process</th>
              <th scope="col">state as last dumped</th>
              <th scope="col" class="number">
                threads
              </th>
              <th scope="col">started</th>
              <th scope="col">
                <span class="unseen">action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.shown.map((row) => (
              <ProcessRow key={row.process.name} row={row} />
            ))}
          </tbody>
        </table>
      )}
      <MoreButton list={list} noun="processes" />
      {props.seen.isCut && <p class="dim">There are more processes than are listed here.</p>}
    </>
  );
}

export function Processes(props: { route: Route }) {
  const answer = useAnswer('processes', load, POLL_MS);
  return (
    <>
      <h1>Processes</h1>
      <Loaded answer={answer} what="processes">
        {(seen) => (
          <Table
            seen={seen}
            search={props.route.query.get('q') ?? ''}
            onSearch={(q) => replaceQuery(props.route, { q })}
          />
        )}
      </Loaded>
    </>
  );
}
