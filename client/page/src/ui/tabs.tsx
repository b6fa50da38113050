// Parts of a view of which one is shown, as the WAI-ARIA pattern has them: arrows go from one to the next.
import type { ComponentChildren } from 'preact';

export interface Tab {
  id: string;
  name: string;
}

export function Tabs(props: {
  tabs: Tab[];
  current: string;
  label: string;
  onPick: (id: string) => void;
  children: ComponentChildren;
}) {
  const { tabs, current, onPick } = props;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = tabs.findIndex((tab) => tab.id === current);
    const next = step === undefined ? undefined : tabs[(at + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    event.preventDefault();
    onPick(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={props.label} onKeyDown={move}>
        {tabs.map(({ id, name }) => (
          <button
            type="button"
            role="tab"
            id={`tab-${id}`}
            aria-controls="tab-panel"
            aria-selected={id === current}
            tabIndex={id === current ? 0 : -1}
            onClick={() => onPick(id)}
          >
            {name}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${current}`}>
        {props.children}
      </div>
    </>
  );
}
