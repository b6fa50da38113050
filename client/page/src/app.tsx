// The frame around every view: where the operator is, and the keys.
import { useEffect, useRef } from 'preact/hooks';
import { IS_GATEWAY } from './api';
import { DumpView } from './dump/dump_view';
import { Help } from './help';
import { onKey } from './keyboard';
import { formatRoute, type Route, useRoute } from './route';
import { Announcer } from './ui/announce';
import { Empty } from './ui/states';
import { Compare } from './views/compare';
import { DaemonView } from './views/daemon';
import { Dumps } from './views/dumps';
import { History } from './views/history';
import { Processes } from './views/processes';
import { StackGroupView } from './views/stack_group';
import { StackGroups } from './views/stack_groups';

const VIEWS: [string, string][] = IS_GATEWAY
  ? [['history', 'Crashes and hangs']]
  : [
      ['processes', 'Processes'],
      ['groups', 'Crashes and hangs'],
      ['dumps', 'Dumps'],
      ['daemon', 'Daemon'],
    ];
const HOME = VIEWS[0]?.[0] ?? '';

function View(props: { route: Route }) {
  const { route } = props;
  const [view = HOME, , second] = route.path;
  const isOne = route.path.length > 1;
  if (view === 'history') return <History route={route} />;
  if (view === 'processes') return <Processes route={route} />;
  if (view === 'dumps') return second === undefined ? <Dumps route={route} /> : <DumpView route={route} />;
  if (view === 'groups') return isOne ? <StackGroupView route={route} /> : <StackGroups route={route} />;
  if (view === 'compare') return <Compare route={route} />;
  if (view === 'daemon') return <DaemonView />;
  return <Empty>There is no such view.</Empty>;
}

function Navigation(props: { current: string; onHelp: () => void }) {
  return (
    <header>
      <nav aria-label="Views">
        <a class="brand" href="#/">
          stackd
        </a>
        {VIEWS.map(([id, name]) => (
          <a href={formatRoute([id])} aria-current={id === props.current ? 'page' : undefined}>
            {name}
          </a>
        ))}
      </nav>
      <button type="button" aria-label="Keys" onClick={props.onHelp}>
        ?
      </button>
    </header>
  );
}

export function App() {
  const route = useRoute();
  const help = useRef<HTMLDialogElement>(null);
  const main = useRef<HTMLElement>(null);
  const showHelp = () => help.current?.showModal();
  const [view = HOME] = route.path;
  const place = route.path.join('/');
  useEffect(() => {
    const listen = (event: KeyboardEvent) => !help.current?.open && onKey(event, showHelp);
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, []);
  useEffect(() => {
    document.title = place === '' ? 'stackd' : `${VIEWS.find(([id]) => id === view)?.[1] ?? 'Compare'} · stackd`;
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [place]);
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to what is shown
      </button>
      <Navigation current={view === 'compare' ? 'dumps' : IS_GATEWAY ? HOME : view} onHelp={showHelp} />
      <main id="main" ref={main} tabIndex={-1}>
        <View route={route} />
      </main>
      <Announcer />
      <Help dialog={help} />
    </>
  );
}
