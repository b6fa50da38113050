// Equal crashes and equal hangs over time.
import { call } from '../api';
import { SeverityMark } from '../dump/findings';
import type { CrashGroup, Dump } from '../messages';
import { formatRoute, type Route, replaceQuery } from '../route';
import { grouped, millisecondsOf } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';
import { Timeline } from './timeline';

const POLL_MS = 10_000;
const MAX_PROCESSES = 4;

interface Groups {
  groups: CrashGroup[];
  isCut: boolean;
  // Attributes of where the newest dumps of each fingerprint were taken: "1.4.2", "pod shop/checkout-0".
  places: Map<string, Set<string>>;
}

export function placesOf(dump: Dump): string[] {
  const attributes = dump.process?.resourceAttributes ?? {};
  const version = attributes['service.version'] ?? attributes['container.image.tag'];
  const image = attributes['container.image.name'];
  const pod = attributes['k8s.pod.name'];
  const space = attributes['k8s.namespace.name'];
  return [
    version && `version ${version}`,
    image && `image ${image}`,
    pod && `pod ${space ? `${space}/` : ''}${pod}`,
  ].filter((place) => place) as string[];
}

async function load(filter: string, signal: AbortSignal): Promise<Groups> {
  const list = (kind: string) => call('ListStackGroups', { kind, filter, pageSize: 200 }, signal);
  const newest = (trigger: string) => call('ListDumps', { trigger, pageSize: 200 }, signal);
  const [crashes, hangs, crashDumps, hangDumps] = await Promise.all([
    list('CRASH'),
    list('HANG'),
    newest('CRASH'),
    newest('HANG'),
  ]);
  const places = new Map<string, Set<string>>();
  for (const dump of [...(crashDumps.dumps ?? []), ...(hangDumps.dumps ?? [])]) {
    const fingerprint = dump.crash?.fingerprint ?? dump.hang?.fingerprint ?? '';
    const known = places.get(fingerprint) ?? new Set();
    for (const place of placesOf(dump)) known.add(place);
    places.set(fingerprint, known);
  }
  const asHangs = (hangs.stackGroups ?? []).map((group) => ({ ...group, kind: 'HANG' }));
  const groups = [...(crashes.stackGroups ?? []), ...asHangs];
  groups.sort((a, b) => millisecondsOf(b.lastSeenTime) - millisecondsOf(a.lastSeenTime));
  return { groups, isCut: Boolean(crashes.nextPageToken || hangs.nextPageToken), places };
}

export function ProcessCounts(props: { group: CrashGroup }) {
  const processes = props.group.processes ?? [];
  const others = Number(props.group.otherProcessCrashCount ?? 0);
  return (
    <>
      {processes.slice(0, MAX_PROCESSES).map((process) => (
        <div>
          <Text value={process.displayName || '(no name)'} max={60} />{' '}
          <span class="dim">{grouped(process.crashCount ?? 0)}</span>
        </div>
      ))}
      {processes.length > MAX_PROCESSES && <div class="dim">and {processes.length - MAX_PROCESSES} more</div>}
      {others > 0 && <div class="dim">others {grouped(others)}</div>}
    </>
  );
}

function Places(props: { places: Set<string> | undefined }) {
  const places = [...(props.places ?? [])];
  return (
    <>
      {places.slice(0, 5).map((place) => (
        <div class="dim">
          <Text value={place} max={80} />
        </div>
      ))}
      {places.length > 5 && <div class="dim">and {places.length - 5} more</div>}
    </>
  );
}

function GroupRow(props: { group: CrashGroup; places: Set<string> | undefined }) {
  const { group } = props;
  const first = millisecondsOf(group.firstSeenTime);
  return (
    <tr>
      <td>
        <SeverityMark severity={group.kind === 'HANG' ? 'HANG' : 'CRASH'} />
      </td>
      <td class="wide">
        <a data-row href={formatRoute(['groups', group.fingerprint ?? ''])}>
          <Sentence value={group.explanation || group.topFunction} />
        </a>
        <div>
          <Text class="function" value={group.topFunction} max={160} />
        </div>
      </td>
      <td class="number">{grouped(group.crashCount ?? 0)}</td>
      <td>
        <Ago time={group.firstSeenTime} />
      </td>
      <td>
        <Ago time={group.lastSeenTime} />
      </td>
      <td>
        <Timeline dumps={group.dumps ?? []} first={first} last={Date.now()} />
      </td>
      <td class="where">
        <ProcessCounts group={group} />
        <Places places={props.places} />
      </td>
    </tr>
  );
}

function Table(props: { value: Groups }) {
  const list = useGrowing(props.value.groups, 100);
  if (props.value.groups.length === 0) return <Empty>No crash and no hang has been counted.</Empty>;
  return (
    <>
      <table>
        <thead>
          <tr>
            <th scope="col">kind</th>
            <th scope="col">what happened</th>
            <th scope="col" class="number">
              count
            </th>
            <th scope="col">first seen</th>
            <th scope="col">last seen</th>
            <th scope="col">from first seen until now</th>
            <th scope="col">where</th>
          </tr>
        </thead>
        <tbody>
          {list.shown.map((group) => (
            <GroupRow
              key={`${group.kind} ${group.fingerprint}`}
              group={group}
              places={props.value.places.get(group.fingerprint ?? '')}
            />
          ))}
        </tbody>
      </table>
      <MoreButton list={list} noun="groups" />
      {props.value.isCut && (
        <p class="dim">There are more groups than are listed here: search for a part of their text.</p>
      )}
    </>
  );
}

export function StackGroups(props: { route: Route }) {
  const q = props.route.query.get('q') ?? '';
  const answer = useAnswer(`groups ${q}`, (signal) => load(q, signal), POLL_MS);
  return (
    <>
      <h1>Crashes and hangs</h1>
      <div class="tools">
        <SearchField
          label="Search text, function, process"
          value={q}
          onInput={(text) => replaceQuery(props.route, { q: text })}
        />
      </div>
      <Loaded answer={answer} what="groups">
        {(value) => <Table value={value} />}
      </Loaded>
    </>
  );
}
