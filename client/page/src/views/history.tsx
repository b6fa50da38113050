// Crashes and hangs of all pods of the fleet, also of those that are gone, as the gateway reads them from the log store.
import { callFleet } from '../api';
import { SeverityMark } from '../dump/findings';
import type { FleetExample, HistoryGroup, Int64, NameCount } from '../messages';
import { addressOfDump, type Route, replaceQuery } from '../route';
import { grouped, millisecondsOf } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';

const POLL_MS = 30_000;
const PAGE_SIZE = 500;
const MAX_NAMES = 4;
const WINDOWS: Record<string, string> = { '3600s': 'hour', '86400s': 'day', '604800s': 'week', '2592000s': '30 days' };
const WEEK = '604800s';

type Group = HistoryGroup & { kind: 'CRASH' | 'HANG' };

interface Groups {
  groups: Group[];
  notes: string[];
}

async function load(selector: string, window: string, signal: AbortSignal): Promise<Groups> {
  const request = { selector, window, pageSize: PAGE_SIZE };
  const [crashes, hangs] = await Promise.all([
    callFleet('ListCrashes', request, signal),
    callFleet('ListHangs', request, signal),
  ]);
  const groups: Group[] = [
    ...(crashes.groups ?? []).map((group) => ({ ...group, kind: 'CRASH' as const })),
    ...(hangs.groups ?? []).map((group) => ({ ...group, kind: 'HANG' as const })),
  ];
  groups.sort((a, b) => millisecondsOf(b.lastSeenTime) - millisecondsOf(a.lastSeenTime));
  const notes = [...(crashes.notes ?? []), ...(hangs.notes ?? [])];
  if (crashes.nextPageToken || hangs.nextPageToken)
    notes.push(`Only the ${PAGE_SIZE} groups that were seen last are listed: ask for fewer pods, or a shorter time.`);
  return { groups, notes };
}

function Names(props: { names: NameCount[]; all?: Int64 }) {
  const all = Math.max(Number(props.all ?? 0), props.names.length);
  const shown = props.names.slice(0, MAX_NAMES);
  return (
    <>
      {shown.map(({ name, count }) => (
        <div>
          <Text value={name} max={80} /> <span class="dim">{grouped(count ?? 0)}</span>
        </div>
      ))}
      {all > shown.length && <div class="dim">and {grouped(all - shown.length)} more</div>}
    </>
  );
}

function DumpLinks(props: { dumps: FleetExample[] }) {
  if (props.dumps.length === 0) return <span class="dim">none was sent whole</span>;
  return (
    <>
      {props.dumps.slice(0, MAX_NAMES).map((one) => (
        <div>
          <a href={addressOfDump(one.dump ?? '', { of: one.target ?? '' })}>
            <Text value={one.pod || one.target} max={60} />
          </a>
        </div>
      ))}
    </>
  );
}

function Row(props: { group: Group }) {
  const { group } = props;
  return (
    <tr>
      <td>
        <SeverityMark severity={group.kind} />
      </td>
      <td class="wide">
        <Sentence value={group.explanation || 'Their stacks are not known.'} />
        <div class="dim">
          <Text value={group.cause} max={80} />
        </div>
      </td>
      <td class="number">{grouped(group.count ?? 0)}</td>
      <td>
        <Ago time={group.firstSeenTime} />
      </td>
      <td>
        <Ago time={group.lastSeenTime} />
      </td>
      <td class="where">
        <Names names={group.pods ?? []} all={group.podCount} />
      </td>
      <td class="where">
        <Names names={group.services ?? []} />
        <Names names={group.versions ?? []} />
      </td>
      <td class="where">
        <DumpLinks dumps={group.dumps ?? []} />
      </td>
    </tr>
  );
}

const COLUMNS = ['kind', 'what happened', 'count', 'first seen', 'last seen', 'pods', 'services and versions', 'dumps'];

function Table(props: { value: Groups }) {
  const list = useGrowing(props.value.groups, 100);
  return (
    <>
      {props.value.notes.map((note) => (
        <p class="dim">
          <Sentence value={note} />
        </p>
      ))}
      {props.value.groups.length === 0 && <Empty>No crash and no hang is in the history of these pods.</Empty>}
      {props.value.groups.length > 0 && (
        <table>
          <thead>
            <tr>
              {COLUMNS.map((name) => (
                <th scope="col" class={name === 'count' ? 'number' : undefined}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {list.shown.map((group) => (
              <Row key={`${group.kind} ${group.fingerprint}`} group={group} />
            ))}
          </tbody>
        </table>
      )}
      <MoreButton list={list} noun="groups" />
    </>
  );
}

export function History(props: { route: Route }) {
  const q = props.route.query.get('q') ?? '';
  const window = props.route.query.get('window') ?? WEEK;
  const answer = useAnswer(`history ${window} ${q}`, (signal) => load(q, window, signal), POLL_MS);
  return (
    <>
      <h1>Crashes and hangs of the fleet</h1>
      <div class="tools">
        <SearchField
          label="Pods, as namespace=shop,pod=checkout-*"
          value={q}
          onInput={(text) => replaceQuery(props.route, { q: text })}
        />
        <label>
          Last{' '}
          <select
            value={window}
            onChange={(event) => replaceQuery(props.route, { window: event.currentTarget.value })}
          >
            {Object.entries(WINDOWS).map(([span, words]) => (
              <option value={span}>{words}</option>
            ))}
          </select>
        </label>
      </div>
      <Loaded answer={answer} what="history">
        {(value) => <Table value={value} />}
      </Loaded>
    </>
  );
}
