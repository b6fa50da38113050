// Dumps that are stored, newest first; two of one process can be compared.
import { useState } from 'preact/hooks';
import { type ApiError, call } from '../api';
import { SeverityMark } from '../dump/findings';
import { countsInWords } from '../dump/summary';
import type { Dump, ListDumpsRequest } from '../messages';
import { addressOfDump, formatRoute, idsOfDump, type Route, replaceQuery } from '../route';
import { placeInWords, timeInWords, triggerInWords } from '../text/wording';
import { SearchField } from '../ui/search_field';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';
import { verdictOf } from './verdict';

const POLL_MS = 3000;
const PAGE_SIZE = 100;
const TRIGGERS = ['', 'REQUEST', 'HANG', 'CRASH', 'SELF'];

function requestOf(route: Route): ListDumpsRequest {
  const { query } = route;
  return {
    pageSize: PAGE_SIZE,
    parent: query.get('parent') ?? '',
    filter: query.get('q') ?? '',
    trigger: query.get('trigger') || 'TRIGGER_UNSPECIFIED',
  };
}

function DumpRow(props: { dump: Dump; isPicked: boolean; onPick: () => void }) {
  const { dump } = props;
  const { severity, sentence } = verdictOf(dump);
  const process = dump.process ?? {};
  const [, id] = idsOfDump(dump.name ?? '');
  return (
    <tr class={severity.toLowerCase()}>
      <td>
        <input type="checkbox" aria-label={`Compare ${id}`} checked={props.isPicked} onChange={props.onPick} />
      </td>
      <td class="taken">
        <a data-row href={addressOfDump(dump.name ?? '')}>
          {timeInWords(dump.createTime)}
        </a>
        <div class="dim">
          <Ago time={dump.createTime} />, {triggerInWords(dump.trigger)}
        </div>
      </td>
      <td>
        <Text value={process.displayName || '(no name)'} max={80} />
        <div class="dim">
          <Text value={placeInWords(process)} max={160} />
        </div>
      </td>
      <td class="wide">
        {severity === '' ? <span class="dim">no hang known</span> : <SeverityMark severity={severity} />}{' '}
        <Sentence value={sentence} />
        <div class="dim">
          {countsInWords(dump)}
          {dump.state === 'PARTIAL' && <strong> PARTIAL</strong>}
        </div>
      </td>
    </tr>
  );
}

// Of two picked dumps: the older one is compared with the newer one.
function CompareLink(props: { picked: string[] }) {
  const [before = '', after = ''] = [...props.picked].sort();
  if (props.picked.length < 2) return <span class="dim">Pick two of one process to compare them.</span>;
  const [process, first] = idsOfDump(before);
  const [other, second] = idsOfDump(after);
  if (process !== other) return <span class="dim">These two are not of one process.</span>;
  return (
    <a class="button" data-compare href={formatRoute(['compare', process, first, second])}>
      Compare these two
    </a>
  );
}

interface Older {
  key: string;
  dumps: Dump[];
  token: string;
  error?: ApiError;
}

function Table(props: { route: Route; request: ListDumpsRequest; first: Dump[]; token: string }) {
  const { request, first } = props;
  const key = JSON.stringify(request);
  const [older, setOlder] = useState<Older>({ key, dumps: [], token: '' });
  const [picked, setPicked] = useState<string[]>([]);
  const current = older.key === key && older.dumps.length > 0 ? older : { key, dumps: [], token: props.token };
  const names = new Set(first.map((dump) => dump.name));
  const dumps = [...first, ...current.dumps.filter((dump) => !names.has(dump.name))];
  const loadOlder = async () => {
    const answer = await call('ListDumps', { ...request, pageToken: current.token }).catch((error: ApiError) => error);
    if (answer instanceof Error) setOlder({ ...current, error: answer });
    else setOlder({ key, dumps: [...current.dumps, ...(answer.dumps ?? [])], token: answer.nextPageToken ?? '' });
  };
  const pick = (name: string) =>
    setPicked((last) => (last.includes(name) ? last.filter((one) => one !== name) : [...last, name].slice(-2)));
  if (dumps.length === 0) return <Empty>There is no such dump.</Empty>;
  return (
    <>
      <p>
        <CompareLink picked={picked} />
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">compare</span>
            </th>
            <th scope="col">taken</th>
            <th scope="col">process</th>
            <th scope="col">what it says</th>
          </tr>
        </thead>
        <tbody>
          {dumps.map((dump) => (
            <DumpRow
              key={dump.name}
              dump={dump}
              isPicked={picked.includes(dump.name ?? '')}
              onPick={() => pick(dump.name ?? '')}
            />
          ))}
        </tbody>
      </table>
      {older.error && (
        <p class="problem" role="alert">
          <Sentence value={older.error.message} />
        </p>
      )}
      {current.token !== '' && (
        <button type="button" class="more" onClick={loadOlder}>
          Older dumps
        </button>
      )}
    </>
  );
}

export function Dumps(props: { route: Route }) {
  const { route } = props;
  const request = requestOf(route);
  const key = JSON.stringify(request);
  const answer = useAnswer(key, (signal) => call('ListDumps', request, signal), POLL_MS);
  const parent = route.query.get('parent') ?? '';
  return (
    <>
      <h1>Dumps</h1>
      <div class="tools">
        <SearchField
          label="Search process name"
          value={route.query.get('q') ?? ''}
          onInput={(q) => replaceQuery(route, { q })}
        />
        <label>
          Taken{' '}
          <select
            value={route.query.get('trigger') ?? ''}
            onChange={(event) => replaceQuery(route, { trigger: event.currentTarget.value })}
          >
            {TRIGGERS.map((trigger) => (
              <option value={trigger}>{trigger === '' ? 'for any reason' : triggerInWords(trigger)}</option>
            ))}
          </select>
        </label>
        {parent !== '' && (
          <button type="button" onClick={() => replaceQuery(route, { parent: '' })}>
            Only <Text value={parent} max={60} /> ✕
          </button>
        )}
      </div>
      <Loaded answer={answer} what="dumps">
        {(value) => (
          <Table route={route} request={request} first={value.dumps ?? []} token={value.nextPageToken ?? ''} />
        )}
      </Loaded>
    </>
  );
}
