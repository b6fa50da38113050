// Threads with equal stacks, folded.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { StackGroup, Thread } from '../messages';
import { count, grouped } from '../text/wording';
import { CopyButton } from '../ui/copy_button';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Empty } from '../ui/states';
import { Text } from '../ui/text';
import { Frames } from './frames';
import { membersInWords, namesInWords, placeOfGroup, searchedText, waitsOfGroup } from './group_words';
import { howRead } from './how_read';
import type { DumpIndex } from './index';
import { stackAsText } from './stack_text';

const MAX_MEMBERS = 12;

function Members(props: { index: DumpIndex; group: StackGroup }) {
  const tids = props.group.tids ?? [];
  const threads = tids.slice(0, MAX_MEMBERS).map((tid): Thread => props.index.threads.get(tid) ?? { tid });
  const ids = (props.group.taskIds ?? []).slice(0, MAX_MEMBERS);
  const moreTasks = Number(props.group.taskCount ?? 0) - ids.length;
  return (
    <ul class="members">
      {threads.map((thread) => (
        <li>
          <Text value={thread.name || '(no name)'} /> <span class="dim">tid {thread.tid}</span> ·{' '}
          <Text value={thread.state} />
          {thread.wait?.explanation && (
            <>
              {' · '}
              <Text value={thread.wait.explanation} />
            </>
          )}
          {thread.holdsGil && ' · has the GIL'} <span class="dim">· {howRead(thread)}</span>
        </li>
      ))}
      {tids.length > threads.length && <li class="dim">and {count(tids.length - threads.length, 'more thread')}</li>}
      {ids.length > 0 && (
        <li>
          ids {ids.join(', ')}
          {moreTasks > 0 && ` and ${grouped(moreTasks)} others`}
        </li>
      )}
    </ul>
  );
}

function OneGroup(props: { index: DumpIndex; group: StackGroup; isOpen: boolean; isPicked: boolean }) {
  const { index, group } = props;
  const { crash } = index.dump;
  const hasCrashed = crash?.tid !== undefined && (group.tids ?? []).includes(crash.tid);
  const [isOpen, setOpen] = useState(props.isOpen);
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (!props.isPicked) return;
    setOpen(true);
    details.current?.scrollIntoView({ block: 'start' });
    details.current?.querySelector('summary')?.focus({ preventScroll: true });
  }, [props.isPicked]);
  return (
    <details ref={details} class="group" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary data-row>
        <span class="members-count">
          {membersInWords(group)}
          {hasCrashed && <strong class="severity crash"> crashed</strong>}
        </span>
        <Text class="function" value={placeOfGroup(group)} max={160} />
        <Text class="names" value={namesInWords(group)} max={200} />
        <Text class="dim" value={waitsOfGroup(index, group)} max={200} />
      </summary>
      {isOpen && (
        <div class="inside">
          <Members index={index} group={group} />
          <Frames stack={group.stack} />
          {group.stack && <CopyButton what="stack" text={() => stackAsText(group.stack ?? {})} />}
        </div>
      )}
    </details>
  );
}

const OPEN_AT_FIRST = 2;

export function Groups(props: {
  index: DumpIndex;
  search: string;
  onSearch: (text: string) => void;
  pickedTid: number;
}) {
  const { index, search, pickedTid } = props;
  const groups = useMemo(() => (index.dump.groups ?? []).filter((group) => !group.isAgent), [index]);
  const texts = useMemo(() => new Map<StackGroup, string>(), [index]);
  const found = useMemo(() => {
    const sought = search.toLowerCase();
    if (sought === '') return groups;
    const textOf = (group: StackGroup) => texts.get(group) ?? searchedText(index, group);
    for (const group of groups) texts.set(group, textOf(group));
    return groups.filter((group) => textOf(group).includes(sought));
  }, [groups, search]);
  const picked = index.groups.get(pickedTid);
  // What was picked, or has crashed, comes first: it may stand behind thousands.
  const first = picked ?? index.groups.get(index.dump.crash?.tid ?? 0);
  const ordered = useMemo(
    () =>
      first === undefined || !found.includes(first) ? found : [first, ...found.filter((group) => group !== first)],
    [found, first],
  );
  const list = useGrowing(ordered, 60);
  const omitted = index.dump.omittedGroupCount ?? 0;
  return (
    <>
      <div class="tools">
        <SearchField label="Search thread, function, file, tid" value={search} onInput={props.onSearch} />
        <span class="dim" role="status">
          {search === ''
            ? count(groups.length, 'group')
            : `${grouped(found.length)} of ${count(groups.length, 'group')}`}
        </span>
      </div>
      {ordered.length === 0 && <Empty>{search === '' ? 'No thread has a stack.' : 'No group has this text.'}</Empty>}
      <div class="groups">
        {list.shown.map((group, i) => (
          <OneGroup
            key={group.fingerprint ?? i}
            index={index}
            group={group}
            isOpen={i < OPEN_AT_FIRST}
            isPicked={group === picked}
          />
        ))}
      </div>
      <MoreButton list={list} noun="groups" />
      {omitted > 0 && (
        <p class="dim">{count(omitted, 'smaller group')} left out of this answer: export the dump to see all.</p>
      )}
    </>
  );
}
