// Flame graph and icicle: the same boxes, grown from below or from above.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Language } from '../messages';
import { label } from '../text/printable';
import { grouped, languageInWords } from '../text/wording';
import { SearchField } from '../ui/search_field';
import { Empty } from '../ui/states';
import { boxesOf, type Counted, countOfMatches, type FlameBox, type FlameNode, flameTreeOf } from './flame_tree';
import type { DumpIndex } from './index';

const ROW_PX = 18;
// A box below a thousandth of the width cannot be read or hit: it is seen where a wider one is zoomed.
const MIN_WIDTH = 0.001;
const MAX_ROWS = 400;

function shareInWords(part: number, whole: number): string {
  return whole === 0 ? '' : `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)} %`;
}

function titleOf(node: FlameNode, root: FlameNode): string {
  const where = [node.place, node.module || languageInWords(node.language)].filter((part) => part !== '').join(', ');
  const name = node === root ? node.name : `${label(node.name, 800)} (${label(where, 200)})`;
  return `${name}: ${grouped(node.count)}, ${shareInWords(node.count, root.count)}`;
}

interface BoxProps {
  box: FlameBox;
  root: FlameNode;
  top: number;
  isMatch: boolean;
  isAbove: boolean;
  onZoom: (node: FlameNode) => void;
}

function Box({ box, root, top, isMatch, isAbove, onZoom }: BoxProps) {
  const { node, narrowCount } = box;
  const style = { left: `${box.left * 100}%`, width: `${box.width * 100}%`, top: `${top}px` };
  if (narrowCount > 0) {
    const text = `${grouped(narrowCount)} too narrow to draw`;
    return (
      <div class="box narrow" title={text} style={style}>
        {text}
      </div>
    );
  }
  const classes = ['box', node.language.toLowerCase(), isMatch && 'match', isAbove && 'above'];
  return (
    <button
      type="button"
      class={classes.filter((name) => name).join(' ')}
      data-depth={box.depth}
      tabIndex={node === root ? 0 : -1}
      title={titleOf(node, root)}
      style={style}
      onClick={() => onZoom(node)}
    >
      {box.width > 0.01 ? label(node.name, 160) : ''}
    </button>
  );
}

// Goes to the box that an arrow points to: of the next row, or the next in the row.
function moveFocus(event: KeyboardEvent, isIcicle: boolean): void {
  const from = event.target as HTMLElement;
  const depth = Number(from.dataset.depth);
  const along = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (along === undefined && down === undefined) return;
  event.preventDefault();
  const rowOf = (wanted: number) =>
    [...(from.parentElement?.querySelectorAll<HTMLElement>(`[data-depth="${wanted}"]`) ?? [])].sort(
      (a, b) => a.offsetLeft - b.offsetLeft,
    );
  if (along !== undefined) {
    const row = rowOf(depth);
    row[row.indexOf(from) + along]?.focus();
    return;
  }
  const row = rowOf(depth + (isIcicle ? 1 : -1) * (down ?? 0));
  (row.find((box) => box.offsetLeft >= from.offsetLeft - 1) ?? row[row.length - 1])?.focus();
}

export function Flame(props: { index: DumpIndex; shape: string; onShape: (shape: string) => void }) {
  const { index } = props;
  const isIcicle = props.shape !== 'flame';
  const hasTasks = Number(index.dump.taskCount ?? 0) > 0;
  const [counted, setCounted] = useState<Counted>(hasTasks ? 'threads and tasks' : 'threads');
  const [language, setLanguage] = useState('');
  const [search, setSearch] = useState('');
  const root = useMemo(() => flameTreeOf(index.dump.groups ?? [], counted, language), [index, counted, language]);
  const [zoomed, setZoomed] = useState(root);
  const focus = rootOf(zoomed) === root ? zoomed : root;
  const boxes = useMemo(() => boxesOf(focus, MIN_WIDTH).filter((box) => box.depth < MAX_ROWS), [focus]);
  const languages = useMemo(() => languagesOf(index), [index]);
  const sought = search.toLowerCase();
  const matches = (node: FlameNode) =>
    sought !== '' && `${node.name}\n${node.place}\n${node.module}`.toLowerCase().includes(sought);
  const rows = boxes.reduce((most, box) => Math.max(most, box.depth + 1), 1);
  const topOf = (box: FlameBox) => (isIcicle ? box.depth : rows - 1 - box.depth) * ROW_PX;
  const matchCount = useMemo(() => (sought === '' ? 0 : countOfMatches(root, matches)), [root, sought]);
  const isZoomed = focus !== root;
  useEffect(() => {
    if (!isZoomed) return;
    const zoomOut = (event: KeyboardEvent) => event.key === 'Escape' && setZoomed(root);
    addEventListener('keydown', zoomOut);
    return () => removeEventListener('keydown', zoomOut);
  }, [isZoomed, root]);
  return (
    <>
      <div class="tools">
        <SearchField label="Search function, file, module" value={search} onInput={setSearch} />
        <button type="button" onClick={() => props.onShape(isIcicle ? 'flame' : 'icicle')}>
          {isIcicle ? 'As flame graph' : 'As icicle'}
        </button>
        {hasTasks && (
          <Choice
            label="Count"
            value={counted}
            options={['threads', 'tasks', 'threads and tasks']}
            onPick={(value) => setCounted(value as Counted)}
          />
        )}
        {languages.length > 1 && (
          <Choice
            label="Frames"
            value={language}
            options={['', ...languages]}
            nameOf={(value) => (value === '' ? 'all languages' : languageInWords(value as Language))}
            onPick={setLanguage}
          />
        )}
        {isZoomed && (
          <button type="button" onClick={() => setZoomed(root)}>
            Zoom out (Esc)
          </button>
        )}
        <span class="dim" role="status">
          {sought !== '' &&
            `${grouped(matchCount)} of ${grouped(root.count)} ${counted}, ${shareInWords(matchCount, root.count)}`}
        </span>
      </div>
      {root.count === 0 ? (
        <Empty>{`There are no stacks of ${counted}.`}</Empty>
      ) : (
        // biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms
        <div
          class="flame"
          role="group"
          aria-label={`${isIcicle ? 'Icicle' : 'Flame graph'} of ${grouped(root.count)} ${counted}: arrows move, Enter zooms`}
          style={{ height: `${rows * ROW_PX}px` }}
          onKeyDown={(event) => moveFocus(event, isIcicle)}
        >
          {boxes.map((box) => (
            <Box
              key={`${box.node.id} ${box.narrowCount}`}
              box={box}
              root={root}
              top={topOf(box)}
              isMatch={matches(box.node)}
              isAbove={box.depth < focus.depth}
              onZoom={setZoomed}
            />
          ))}
        </div>
      )}
    </>
  );
}

function rootOf(node: FlameNode): FlameNode {
  let root = node;
  while (root.parent !== undefined) root = root.parent;
  return root;
}

function languagesOf(index: DumpIndex): string[] {
  const found = new Set<string>();
  for (const group of index.dump.groups ?? [])
    for (const frame of group.stack?.frames ?? []) if (frame.language !== undefined) found.add(frame.language);
  return [...found].sort();
}

function Choice(props: {
  label: string;
  value: string;
  options: string[];
  nameOf?: (value: string) => string;
  onPick: (value: string) => void;
}) {
  return (
    <label>
      {props.label}{' '}
      <select value={props.value} onChange={(event) => props.onPick(event.currentTarget.value)}>
        {props.options.map((option) => (
          <option value={option}>{props.nameOf?.(option) ?? option}</option>
        ))}
      </select>
    </label>
  );
}
