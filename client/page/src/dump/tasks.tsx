// What runtimes schedule by themselves: goroutines, virtual threads, tasks.
import { useMemo, useState } from 'preact/hooks';
import type { Task } from '../messages';
import { count, durationInWords, enumInWords, grouped } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { SearchField } from '../ui/search_field';
import { Text } from '../ui/text';
import { Frames } from './frames';
import type { DumpIndex } from './index';
import { placeInProgram } from './program_frame';

function stackOfTask(index: DumpIndex, task: Task) {
  return task.stack === undefined ? undefined : index.dump.stacks?.[task.stack];
}

function OneTask(props: { index: DumpIndex; task: Task }) {
  const { index, task } = props;
  const [isOpen, setOpen] = useState(false);
  const stack = stackOfTask(index, task);
  const waits = task.waitReason ? `${task.state}: ${task.waitReason}` : task.state;
  return (
    <details class="group" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary data-row>
        <span class="members-count">
          {enumInWords(task.kind)} {task.id}
        </span>
        <Text class="function" value={placeInProgram(stack) || '(no stack)'} max={160} />
        <Text class="names" value={task.name} max={120} />
        <span class="dim">
          <Text value={waits} max={120} />
          {task.waitDuration && ` for about ${durationInWords(task.waitDuration)}`}
          {task.tid ? ` on thread ${task.tid}` : ''}
        </span>
      </summary>
      {isOpen && (
        <div class="inside">
          {task.createdBy && (
            <p class="dim">
              created by <Text value={task.createdBy} />
              {task.creatorId && ` in ${enumInWords(task.kind)} ${task.creatorId}`}
            </p>
          )}
          <Frames stack={stack} />
        </div>
      )}
    </details>
  );
}

export function Tasks(props: { index: DumpIndex }) {
  const { index } = props;
  const [search, setSearch] = useState('');
  const tasks = index.dump.tasks ?? [];
  const found = useMemo(() => {
    const sought = search.toLowerCase();
    const has = (task: Task) => {
      const text = `${task.id} ${task.name} ${task.state} ${task.waitReason} ${task.createdBy} ${placeInProgram(stackOfTask(index, task))}`;
      return text.toLowerCase().includes(sought);
    };
    return sought === '' ? tasks : tasks.filter(has);
  }, [index, search]);
  const list = useGrowing(found, 60);
  const missing = Number(index.dump.taskCount ?? 0) - tasks.length;
  return (
    <>
      <div class="tools">
        <SearchField label="Search tasks" value={search} onInput={setSearch} />
        <span class="dim" role="status">
          {search === '' ? count(tasks.length, 'task') : `${grouped(found.length)} of ${count(tasks.length, 'task')}`}
        </span>
      </div>
      <div class="groups">
        {list.shown.map((task) => (
          <OneTask key={`${task.kind} ${task.id}`} index={index} task={task} />
        ))}
      </div>
      <MoreButton list={list} noun="tasks" />
      {missing > 0 && <p class="dim">{count(missing, 'task')} left out of this answer: export the dump to see all.</p>}
    </>
  );
}
