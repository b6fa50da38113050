// One group of equal crashes or hangs: why they are taken for equal, and their dumps.
import { call } from '../api';
import type { CrashGroup } from '../messages';
import { addressOfDump, type Route } from '../route';
import { count, grouped, millisecondsOf, millisecondsOfDumpName, timeInWords } from '../text/wording';
import { MoreButton, useGrowing } from '../ui/growing';
import { Empty, Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';
import { ProcessCounts } from './stack_groups';
import { Timeline } from './timeline';

function FingerprintFrames(props: { group: CrashGroup }) {
  const frames = props.group.fingerprintFrames ?? [];
  return (
    <section aria-labelledby="why">
      <h2 id="why">Why they are taken for equal</h2>
      <ol class="frames">
        {frames.slice(0, 200).map((frame) => (
          <li class={frame.used ? 'frame own' : 'frame'}>
            <Text class="function" value={frame.function || frame.module} />{' '}
            <span class="module">
              (<Text value={frame.module} max={80} />)
            </span>
            {!frame.used && (
              <span class="mark">
                {' '}
                skipped: <Text value={frame.rule} max={80} />
              </span>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

function DumpLinks(props: { dumps: string[] }) {
  const newestFirst = [...props.dumps].reverse();
  const list = useGrowing(newestFirst, 100);
  return (
    <section aria-labelledby="kept">
      <h2 id="kept">{count(props.dumps.length, 'dump')} kept</h2>
      {props.dumps.length === 0 && <Empty>None of its dumps is stored any more.</Empty>}
      <ul class="dumps">
        {list.shown.map((name) => {
          const time = millisecondsOfDumpName(name);
          return (
            <li>
              <a data-row href={addressOfDump(name)}>
                {Number.isNaN(time) ? <Text value={name} /> : timeInWords(new Date(time).toISOString())}
              </a>
            </li>
          );
        })}
      </ul>
      <MoreButton list={list} noun="dumps" />
    </section>
  );
}

function Group(props: { group: CrashGroup }) {
  const { group } = props;
  return (
    <>
      <h1>
        {group.kind === 'HANG' ? 'Hang' : 'Crash'} in{' '}
        <Text class="function" value={group.topFunction || 'an unknown function'} max={160} />
      </h1>
      <p class="said">
        <Sentence value={group.explanation} />
      </p>
      <dl class="facts">
        <div>
          <dt>count</dt>
          <dd>{grouped(group.crashCount ?? 0)}</dd>
        </div>
        <div>
          <dt>first seen</dt>
          <dd>
            {timeInWords(group.firstSeenTime)} (<Ago time={group.firstSeenTime} />)
          </dd>
        </div>
        <div>
          <dt>last seen</dt>
          <dd>
            {timeInWords(group.lastSeenTime)} (<Ago time={group.lastSeenTime} />)
          </dd>
        </div>
        <div>
          <dt>fingerprint</dt>
          <dd class="code">
            <Text value={group.fingerprint} /> (<Text value={group.fingerprintRule} max={40} />)
          </dd>
        </div>
        <div>
          <dt>processes</dt>
          <dd>
            <ProcessCounts group={group} />
          </dd>
        </div>
      </dl>
      <Timeline dumps={group.dumps ?? []} first={millisecondsOf(group.firstSeenTime)} last={Date.now()} />
      <FingerprintFrames group={group} />
      <DumpLinks dumps={group.dumps ?? []} />
    </>
  );
}

export function StackGroupView(props: { route: Route }) {
  const [, fingerprint = ''] = props.route.path;
  const answer = useAnswer(`group ${fingerprint}`, (signal) => call('GetStackGroup', { name: fingerprint }, signal));
  return (
    <Loaded answer={answer} what="the group">
      {(group) => <Group group={group} />}
    </Loaded>
  );
}
