// Every thread that the kernel listed.
import { useMemo, useState } from 'preact/hooks';
import type { Thread } from '../messages';
import { count, durationInWords, grouped, secondsOf } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Text } from '../ui/text';
import { howRead } from './how_read';
import { type DumpIndex, stackOf } from './index';
import { placeInProgram } from './program_frame';

type Order = 'kernel' | 'name' | 'cpu';

const ORDERS: Record<Order, (a: Thread, b: Thread) => number> = {
  kernel: () => 0,
  name: (a, b) => (a.name ?? '').localeCompare(b.name ?? ''),
  cpu: (a, b) => secondsOf(b.cpuTime) - secondsOf(a.cpuTime),
};

function placeOf(index: DumpIndex, thread: Thread): string {
  return placeInProgram(stackOf(index, thread.tid ?? 0));
}

function ThreadRow(props: { index: DumpIndex; thread: Thread; onPick: (tid: number) => void }) {
  const { index, thread } = props;
  const tid = thread.tid ?? 0;
  return (
    <tr>
      <td class="number">
        {index.groups.has(tid) ? (
          <button type="button" class="link" data-row onClick={() => props.onPick(tid)}>
            {tid}
          </button>
        ) : (
          tid
        )}
      </td>
      <td>
        <Text value={thread.name || '(no name)'} max={60} />
        {thread.holdsGil && <span class="mark"> GIL</span>}
        {thread.isAgent && <span class="mark"> stackd's own</span>}
      </td>
      <td>
        <Text value={thread.wait?.explanation ?? thread.state} max={160} />
      </td>
      <td>
        <Text class="function" value={placeOf(index, thread)} max={120} />
      </td>
      <td class="number">{thread.cpuTime === undefined ? '' : durationInWords(thread.cpuTime)}</td>
      <td class="dim">
        <Text value={howRead(thread)} />
      </td>
    </tr>
  );
}

function OrderButton(props: { order: Order; current: Order; onPick: (order: Order) => void; children: string }) {
  return (
    <button
      type="button"
      class="link"
      aria-pressed={props.order === props.current}
      onClick={() => props.onPick(props.order)}
    >
      {props.children}
    </button>
  );
}

export function Threads(props: { index: DumpIndex; onPick: (tid: number) => void }) {
  const { index } = props;
  const [search, setSearch] = useState('');
  const [order, setOrder] = useState<Order>('kernel');
  const threads = index.dump.threads ?? [];
  const found = useMemo(() => {
    const sought = search.toLowerCase();
    const has = (thread: Thread) =>
      `${thread.tid} ${thread.name} ${thread.state} ${thread.wait?.explanation} ${placeOf(index, thread)}`
        .toLowerCase()
        .includes(sought);
    return (sought === '' ? [...threads] : threads.filter(has)).sort(ORDERS[order]);
  }, [index, search, order]);
  const list = useGrowing(found, 100);
  return (
    <>
      <div class="tools">
        <SearchField label="Search threads" value={search} onInput={setSearch} />
        <span class="dim" role="status">
          {search === ''
            ? count(threads.length, 'thread')
            : `${grouped(found.length)} of ${count(threads.length, 'thread')}`}
        </span>
        <span>
          Order:{' '}
          <OrderButton order="kernel" current={order} onPick={setOrder}>
            as the kernel has them
          </OrderButton>{' '}
          <OrderButton order="name" current={order} onPick={setOrder}>
            name
          </OrderButton>{' '}
          <OrderButton order="cpu" current={order} onPick={setOrder}>
            CPU time
          </OrderButton>
        </span>
      </div>
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">
              tid
            </th>
            <th scope="col">name</th>
            <th scope="col">state</th>
            <th scope="col">where</th>
            <th scope="col" class="number">
              CPU time
            </th>
            <th scope="col">how it was read</th>
          </tr>
        </thead>
        <tbody>
          {list.shown.map((thread) => (
            <ThreadRow index={index} thread={thread} onPick={props.onPick} />
          ))}
        </tbody>
      </table>
      <MoreButton list={list} noun="threads" />
    </>
  );
}
