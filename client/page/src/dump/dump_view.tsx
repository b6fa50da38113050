// One dump: what is wrong first, then who waits for whom, then every stack.
import { useMemo } from 'preact/hooks';
import { call, IS_GATEWAY } from '../api';
import { loadDump } from '../kept_dumps';
import type { Dump } from '../messages';
import { addressOfDump, formatRoute, idsOfDump, nameOfDump, type Route, replaceQuery } from '../route';
import { CopyButton } from '../ui/copy_button';
import { DumpButton } from '../ui/dump_button';
import { Loaded } from '../ui/states';
import { type Tab, Tabs } from '../ui/tabs';
import { useAnswer } from '../use_answer';
import { Findings } from './findings';
import { Flame } from './flame_view';
import { Groups } from './groups';
import { type DumpIndex, indexOf } from './index';
import { Modules } from './modules';
import { Notes, notesCount } from './notes';
import { Summary } from './summary';
import { Tasks } from './tasks';
import { Threads } from './threads';
import { WaitGraphSection } from './wait_graph_view';

const FRAMES = ['ALL_FRAMES', 'MANAGED_FRAMES', 'NATIVE_FRAMES'];
const FRAMES_IN_WORDS: Record<string, string> = {
  ALL_FRAMES: 'all',
  MANAGED_FRAMES: 'of the language',
  NATIVE_FRAMES: 'native',
};

function tabsOf(dump: Dump): Tab[] {
  const notes = notesCount(dump);
  const tabs = [
    { id: 'groups', name: 'Stacks' },
    { id: 'threads', name: 'Threads' },
    { id: 'tasks', name: 'Tasks' },
    { id: 'flame', name: 'Flame graph' },
    { id: 'notes', name: notes > 0 ? `Notes (${notes})` : 'Notes' },
    { id: 'modules', name: 'Modules' },
  ];
  return (dump.tasks ?? []).length > 0 ? tabs : tabs.filter((tab) => tab.id !== 'tasks');
}

function saveAs(file: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

async function textOf(name: string): Promise<string> {
  const dump = await call('GetDump', { name, view: 'DUMP_VIEW_TEXT' });
  return `${(dump.lines ?? []).join('\n')}\n`;
}

function Actions(props: { dump: Dump; route: Route }) {
  const { dump, route } = props;
  const name = dump.name ?? '';
  const [process, id] = idsOfDump(name);
  const frames = route.query.get('frames') ?? 'ALL_FRAMES';
  return (
    <div class="tools">
      {!dump.crash && !IS_GATEWAY && (
        <>
          <DumpButton process={dump.process?.name ?? ''} title={`${dump.process?.displayName ?? 'process'} again`} />
          <a class="button" href={formatRoute(['compare', process, '-', id])}>
            Compare with the one before
          </a>
        </>
      )}
      {!IS_GATEWAY && <CopyButton what="text" text={() => textOf(name)} />}
      <button type="button" onClick={() => saveAs(`${process}-${id}.json`, JSON.stringify(dump))}>
        Save JSON
      </button>
      {!IS_GATEWAY && (
        <a class="button" href={formatRoute(['dumps'], { parent: `processes/${process}` })}>
          All of this process
        </a>
      )}
      {(dump.runtimes ?? []).length > 0 && !IS_GATEWAY && (
        <label>
          Frames{' '}
          <select value={frames} onChange={(event) => replaceQuery(route, { frames: event.currentTarget.value })}>
            {FRAMES.map((value) => (
              <option value={value}>{FRAMES_IN_WORDS[value]}</option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

function Parts(props: { index: DumpIndex; route: Route }) {
  const { index, route } = props;
  const { dump } = index;
  const tabs = tabsOf(dump);
  const tab = tabs.find(({ id }) => id === route.query.get('tab'))?.id ?? 'groups';
  const of = route.query.get('of') ?? '';
  const pick = (tid: number) => replaceQuery(route, { tab: 'groups', tid: String(tid), q: '' });
  return (
    <>
      <Findings findings={dump.findings} isCrash={dump.crash !== undefined} />
      <WaitGraphSection index={index} addressOf={(tid) => addressOfDump(dump.name ?? '', { of, tid: String(tid) })} />
      <Tabs label="Parts of the dump" tabs={tabs} current={tab} onPick={(id) => replaceQuery(route, { tab: id })}>
        {tab === 'groups' && (
          <Groups
            index={index}
            search={route.query.get('q') ?? ''}
            onSearch={(q) => replaceQuery(route, { q, tid: '' })}
            pickedTid={Number(route.query.get('tid') ?? 0)}
          />
        )}
        {tab === 'threads' && <Threads index={index} onPick={pick} />}
        {tab === 'tasks' && <Tasks index={index} />}
        {tab === 'flame' && (
          <Flame
            index={index}
            shape={route.query.get('shape') ?? 'icicle'}
            onShape={(shape) => replaceQuery(route, { shape })}
          />
        )}
        {tab === 'notes' && <Notes dump={dump} />}
        {tab === 'modules' && <Modules modules={dump.modules ?? []} />}
      </Tabs>
    </>
  );
}

function LoadedDump(props: { dump: Dump; route: Route }) {
  const index = useMemo(() => indexOf(props.dump), [props.dump]);
  return (
    <>
      <Summary dump={props.dump} />
      <Actions dump={props.dump} route={props.route} />
      <Parts index={index} route={props.route} />
    </>
  );
}

export function DumpView(props: { route: Route }) {
  const { route } = props;
  const [, process = '', id = ''] = route.path;
  const of = route.query.get('of') ?? '';
  const name = `${of && `${of}/`}${nameOfDump(process, id)}`;
  const frames = route.query.get('frames') ?? 'ALL_FRAMES';
  const answer = useAnswer(`${name} ${frames}`, (signal) => loadDump(name, frames, signal));
  return (
    <Loaded answer={answer} what="the dump">
      {(dump) => <LoadedDump key={`${name} ${frames}`} dump={dump} route={route} />}
    </Loaded>
  );
}
