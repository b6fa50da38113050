// Answers of a daemon: those that record.py recorded, told apart as a daemon tells them apart.
import { readFileSync } from 'node:fs';
import { Refusal } from './server.mjs';

export const RECORDED = JSON.parse(readFileSync(new URL('answers.json', import.meta.url), 'utf8'));

export function notFound(what) {
  throw new Refusal(404, 'not_found', `there is no ${what}`);
}

// Dumps of a recording of which `test` is true, as the one that is named by it.
export function dumpWhere(recorded, test) {
  return Object.values(recorded.full).find(test) ?? notFound('such dump in the recording');
}

function listDumps(
  recorded,
  { parent = '', filter = '', trigger = 'TRIGGER_UNSPECIFIED', pageSize = 100, pageToken = '' },
) {
  const matches = recorded.dumps.filter(
    (dump) =>
      (parent === '' || dump.process.name === parent) &&
      dump.process.displayName.includes(filter) &&
      (trigger === 'TRIGGER_UNSPECIFIED' || dump.trigger === trigger),
  );
  const begin = Number(pageToken);
  const end = begin + pageSize;
  return { dumps: matches.slice(begin, end), nextPageToken: end < matches.length ? String(end) : '' };
}

function getDump(recorded, { name, view }) {
  if (view === 'DUMP_VIEW_TEXT') return { name, lines: recorded.text };
  return recorded.full[name] ?? notFound(`dump ${name}`);
}

export function answersOf(recorded = RECORDED) {
  return {
    ListProcesses: () => ({ processes: recorded.processes }),
    ListDumps: (request) => listDumps(recorded, request),
    GetDump: (request) => getDump(recorded, request),
    CreateDump: ({ process }) => dumpWhere(recorded, (dump) => dump.process.name === process),
    CompareDumps: () => recorded.comparison,
    ListStackGroups: ({ kind, filter = '' }) => ({
      stackGroups: recorded.groups[kind].filter((group) => JSON.stringify(group).includes(filter)),
    }),
    GetStackGroup: ({ name }) => recorded.group[name] ?? notFound(`group ${name}`),
    GetDaemon: () => recorded.daemon,
  };
}

// What a gateway would say of the recording, were each process in a pod of its own: "shop/billing-1423-135259".
export function gatewayAnswersOf(recorded = RECORDED) {
  const groupsOf = (kind) =>
    recorded.groups[kind].map((group) => {
      const dumps = group.dumps.map((dump) => {
        const pod = `${group.processes[0].displayName}-${dump.split('/')[1]}`;
        return { pod, target: `targets/shop/${pod}`, dump };
      });
      return {
        ...group,
        count: group.crashCount,
        cause: kind === 'CRASH' ? 'SIGSEGV' : 'DEADLOCK',
        services: [{ name: group.processes[0].displayName, count: group.crashCount }],
        versions: [{ name: '1.4.2', count: group.crashCount }],
        pods: dumps.map(({ pod }) => ({ name: `shop/${pod}`, count: '1' })),
        podCount: String(dumps.length),
        dumps,
      };
    });
  return {
    ListCrashes: () => ({ groups: groupsOf('CRASH'), notes: ['only the newest 50000 records are counted'] }),
    ListHangs: () => ({ groups: groupsOf('HANG') }),
    GetDump: ({ name }) => recorded.full[name.replace(/^targets\/[^/]+\/[^/]+\//, '')] ?? notFound(`dump ${name}`),
  };
}

export function addressOf(dump) {
  const [, process, , id] = dump.name.split('/');
  return `#/dumps/${process}/${id}`;
}
