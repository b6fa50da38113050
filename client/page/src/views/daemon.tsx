// The daemon itself: what is wrong with it, and what it has counted.
import { useState } from 'preact/hooks';
import { call } from '../api';
import type { Daemon } from '../messages';
import { bytesInWords, grouped, timeInWords } from '../text/wording';
import { SearchField } from '../ui/search_field';
import { Loaded } from '../ui/states';
import { Sentence, Text } from '../ui/text';
import { Ago } from '../ui/time';
import { useAnswer } from '../use_answer';

const POLL_MS = 5000;

function Counters(props: { counters: Record<string, string | number> }) {
  const [search, setSearch] = useState('');
  const all = Object.entries(props.counters).filter(([name]) => name.includes(search.toLowerCase()));
  all.sort(([a, x], [b, y]) => Number(y !== '0') - Number(x !== '0') || a.localeCompare(b));
  return (
    <section aria-labelledby="counters">
      <h2 id="counters">Counters since start</h2>
      <div class="tools">
        <SearchField label="Search counters" value={search} onInput={setSearch} />
      </div>
      <table class="narrow">
        <thead>
          <tr>
            <th scope="col">counter</th>
            <th scope="col">value</th>
          </tr>
        </thead>
        <tbody>
          {all.map(([name, value]) => (
            <tr class={value === '0' ? 'dim' : ''}>
              <td class="code">
                <Text value={name} />
              </td>
              <td class="number">{grouped(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Facts(props: { daemon: Daemon }) {
  const { daemon } = props;
  return (
    <dl class="facts">
      <div>
        <dt>version</dt>
        <dd>
          <Text value={daemon.version} /> (ABI {daemon.abiVersion ?? 0})
        </dd>
      </div>
      <div>
        <dt>running</dt>
        <dd>
          pid {daemon.pid ?? 0}, since{' '}
          <span title={timeInWords(daemon.startTime)}>{<Ago time={daemon.startTime} />}</span>
        </dd>
      </div>
      <div>
        <dt>directory</dt>
        <dd>
          <Text value={daemon.dir} />
        </dd>
      </div>
      <div>
        <dt>store</dt>
        <dd>
          <Text value={daemon.store || 'in memory'} />: {grouped(daemon.dumpCount ?? 0)} dumps,{' '}
          {bytesInWords(daemon.storeBytes ?? 0)}
        </dd>
      </div>
      <div>
        <dt>processes</dt>
        <dd>{grouped(daemon.processCount ?? 0)}</dd>
      </div>
      {Object.entries(daemon.resourceAttributes ?? {}).map(([name, value]) => (
        <div>
          <dt>
            <Text value={name} />
          </dt>
          <dd>
            <Text value={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

export function DaemonView() {
  const answer = useAnswer('daemon', (signal) => call('GetDaemon', {}, signal), POLL_MS);
  return (
    <>
      <h1>Daemon</h1>
      <Loaded answer={answer} what="the daemon">
        {(daemon) => (
          <>
            {(daemon.problems ?? []).length === 0 && <p class="well">The daemon has no problem.</p>}
            {(daemon.problems ?? []).map((problem) => (
              <p class="problem">
                <Sentence value={problem} />
              </p>
            ))}
            <Facts daemon={daemon} />
            <Counters counters={daemon.counters ?? {}} />
          </>
        )}
      </Loaded>
    </>
  );
}
