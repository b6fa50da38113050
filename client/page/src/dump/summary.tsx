// The head of a dump: whose it is, when and why it was taken, and whether all of it is there.
import { IS_GATEWAY } from '../api';
import type { Crash, Dump, Finding, Hang, ThreadCounts } from '../messages';
import { formatRoute } from '../route';
import {
  count,
  durationInWords,
  enumInWords,
  grouped,
  placeInWords,
  secondsOf,
  timeInWords,
  triggerInWords,
} from '../text/wording';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';

const NOT_CAPTURED: [keyof ThreadCounts, string][] = [
  ['signalBlocked', 'block the dump signal'],
  ['uninterruptible', 'uninterruptible'],
  ['stopped', 'stopped'],
  ['timedOut', 'did not answer'],
  ['ringFull', 'found no room in the ring'],
  ['signalQueueFull', 'could not be signalled'],
  ['agentFault', 'met a fault in the agent'],
  ['running', 'not interrupted'],
  ['exited', 'exited'],
];

export function countsInWords(dump: Dump): string {
  const counts = dump.threadCounts ?? {};
  const own = (dump.groups ?? []).reduce((sum, group) => sum + (group.isAgent ? (group.threadCount ?? 0) : 0), 0);
  const listed = (counts.listed ?? 0) - own;
  const captured = (counts.captured ?? 0) - own;
  const asleep = dump.pause?.notPaused ? ` (${grouped(dump.pause.notPaused)} asleep, without a signal)` : '';
  const missing = NOT_CAPTURED.filter(([field]) => counts[field]).map(
    ([field, words]) => `${grouped(counts[field] ?? 0)} ${words}`,
  );
  const all =
    listed > 0 && captured === listed
      ? `${count(listed, 'thread')}, all captured${asleep}`
      : [`${count(listed, 'thread')}, ${grouped(captured)} captured${asleep}`, ...missing].join(', ');
  const pause = secondsOf(dump.pause?.max) > 0 ? `; longest pause ${durationInWords(dump.pause?.max)}` : '';
  return `${all}, in ${durationInWords(dump.captureDuration)}${pause}`;
}

function CrashBox(props: { crash: Crash }) {
  const { crash } = props;
  const facts: [string, string | undefined][] = [
    ['cause', crash.cause && enumInWords(crash.cause)],
    ['signal', [crash.signalName, crash.codeName].filter((part) => part).join(' ')],
    ['address', crash.faultAddress],
    ['thread', crash.tid === undefined ? '' : `tid ${crash.tid}`],
    ['last words', crash.abortMessage],
    ['exception', crash.exceptionType],
    ['sent by', crash.senderPid ? `pid ${crash.senderPid}, user ${crash.senderUid ?? 0}` : ''],
    ['found', crash.fromSpool ? 'in the spool: the process had ended without a daemon' : ''],
  ];
  return (
    <section class="verdict hang" aria-label="Crash">
      <p class="said">
        <strong>Crashed:</strong> <Sentence value={crash.explanation} />
      </p>
      <Facts facts={facts} />
      <GroupLink fingerprint={crash.fingerprint} what="crashes" />
    </section>
  );
}

// The sentence of a hang is mostly that of a finding, which stands right below.
function HangBox(props: { hang: Hang; findings: Finding[] }) {
  const { hang } = props;
  const isSaidBelow = props.findings.some((finding) => finding.explanation === hang.explanation);
  const facts: [string, string | undefined][] = [
    ['cause', hang.cause && enumInWords(hang.cause)],
    ['lasted', hang.duration && durationInWords(hang.duration)],
    ['heartbeat', hang.heartbeat],
    ['rule', hang.rule],
  ];
  return (
    <section class={isSaidBelow ? '' : 'verdict hang'} aria-label="Hang">
      {!isSaidBelow && (
        <p class="said">
          <strong>Hangs:</strong> <Sentence value={hang.explanation} />
        </p>
      )}
      <Facts facts={facts} />
      <GroupLink fingerprint={hang.fingerprint} what="hangs" />
    </section>
  );
}

function Facts(props: { facts: [string, string | undefined][] }) {
  return (
    <dl class="facts">
      {props.facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>
              <Text value={value} max={400} />
            </dd>
          </div>
        ))}
    </dl>
  );
}

function GroupLink(props: { fingerprint: string | undefined; what: string }) {
  if (!props.fingerprint || IS_GATEWAY) return null;
  return <a href={formatRoute(['groups', props.fingerprint])}>Equal {props.what} over time</a>;
}

export function Summary(props: { dump: Dump }) {
  const { dump } = props;
  const process = dump.process ?? {};
  const runtimes = (dump.runtimes ?? []).map((runtime) => runtime.name ?? '').join(', ');
  return (
    <>
      <h1>
        <Text value={process.displayName || 'process'} max={80} />{' '}
        <small>
          <Text value={placeInWords(process)} />
        </small>
      </h1>
      <p class="facts-line">
        {timeInWords(dump.createTime)} (<Ago time={dump.createTime} />) · {triggerInWords(dump.trigger)}
        {dump.state === 'PARTIAL' && <strong class="badge"> PARTIAL</strong>}
        {!dump.stored && <strong class="badge"> not stored: this page has the only copy</strong>}
      </p>
      <p class="facts-line">
        {countsInWords(dump)}
        {runtimes !== '' && (
          <>
            {' · '}
            <Text value={runtimes} />
          </>
        )}
      </p>
      {dump.crash && <CrashBox crash={dump.crash} />}
      {dump.hang && !dump.crash && <HangBox hang={dump.hang} findings={dump.findings ?? []} />}
    </>
  );
}
