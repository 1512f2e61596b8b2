/** The revisions of a document as a picture that is also a list. */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { Badge, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import type { OpenDocument } from './document-text.ts'
import { shortRev } from './live-panel.tsx'
import { type Branch, revisionTree, type Tree, type TreeLine, type TreeRow } from './revision-tree.ts'
import { readDocument } from './stored-document.ts'

const { documents: texts } = en

/** Branches beside the winner's that are read at once. */
const BRANCHES = 7
/** In px. */
const ROW = 36
const LANE = 18
const EDGE = 14

interface RevisionsProps {
  readonly database: string
  readonly document: OpenDocument
}

export function Revisions({ database, document }: RevisionsProps) {
  const [most, setMost] = useState(BRANCHES)
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set())
  const { data, failure, reload } = useLoad<Branches>(
    (signal) => readBranches(database, document, most, signal),
    JSON.stringify([database, document.id, document.rev, document.conflicts, most]),
  )
  return (
    <Card
      title={texts.revisions}
      actions={
        <LinkButton
          kind="quiet"
          isSmall
          icon="restore"
          href={hashOf(['databases', database, 'time-machine', document.id])}
        >
          {texts.history}
        </LinkButton>
      }
    >
      {failure !== null && <ErrorNotice failure={failure} title={texts.revisionsNotRead} onRetry={reload} />}
      {data === undefined ? (
        failure === null && <Skeleton lines={3} />
      ) : (
        <Picture
          database={database}
          document={document}
          tree={revisionTree(data.read, opened)}
          onOpen={(rev) => setOpened(new Set([...opened, rev]))}
        />
      )}
      {data !== undefined && data.others > 0 && (
        <div class="row">
          <span class="fine">{texts.moreBranches(data.others)}</span>
          <Button isSmall onClick={() => setMost(most + BRANCHES)}>
            {en.common.more}
          </Button>
        </div>
      )}
    </Card>
  )
}

interface Branches {
  /** The winner's first. */
  readonly read: readonly Branch[]
  /** How many more there are. */
  readonly others: number
}

/** @param most branches to read beside those of the winner and of the shown revision */
async function readBranches(
  database: string,
  { id, rev: shown }: OpenDocument,
  most: number,
  signal: AbortSignal,
): Promise<Branches> {
  const winner = await readDocument(database, id, undefined, signal)
  const leaves = [...winner.conflicts, ...winner.deletedConflicts]
  const wanted = [...new Set([...leaves.slice(0, most), shown ?? ''])]
  const read = [branchOf(winner)]
  // One after the other: each has a whole document in its answer.
  for (const rev of wanted) {
    const isKnown = rev === '' || read.some(({ history }) => history.some((each) => each.rev === rev))
    if (!isKnown) read.push(branchOf(await readDocument(database, id, rev, signal)))
  }
  return { read, others: Math.max(0, leaves.length - most) }
}

function branchOf({ rev, isDeleted, history }: OpenDocument): Branch {
  const leaf = rev ?? ''
  return { leaf, isDeleted, history: history.length > 0 ? history : [{ rev: leaf, status: 'available' }] }
}

interface PictureProps extends RevisionsProps {
  readonly tree: Tree
  readonly onOpen: (rev: string) => void
}

function Picture({ database, document, tree, onOpen }: PictureProps) {
  const { rows, lines, lanes } = tree
  const width = EDGE + lanes * LANE
  return (
    <div class="tree">
      <svg class="tree-picture" width={width} height={rows.length * ROW} aria-hidden="true">
        {lines.map((line) => (
          <path
            key={`${line.from} ${line.fromLane} ${line.to}`}
            class={lineClass(line)}
            d={pathOf(line, rows.length)}
          />
        ))}
        {rows.map((row, at) =>
          row.kind === 'gap' ? (
            <circle key={row.rev} class="tree-gap" cx={x(row.lane)} cy={y(at)} r="3" />
          ) : (
            <circle
              key={row.rev}
              class={dotClass(row)}
              cx={x(row.lane)}
              cy={y(at)}
              r={row.isLeaf ? 6 : 4.5}
            />
          ),
        )}
      </svg>
      <ol class="tree-rows" aria-label={texts.revisions}>
        {rows.map((row) => (
          <li key={row.rev}>
            {row.kind === 'gap' ? (
              <button type="button" class="tree-open" onClick={() => onOpen(row.rev)}>
                {texts.olderRevisions(row.count)}
              </button>
            ) : (
              <Revision database={database} id={document.id} row={row} isShown={row.rev === document.rev} />
            )}
          </li>
        ))}
      </ol>
    </div>
  )
}

interface RevisionProps {
  readonly database: string
  readonly id: string
  readonly row: Extract<TreeRow, { kind: 'revision' }>
  readonly isShown: boolean
}

function Revision({ database, id, row, isShown }: RevisionProps) {
  const { rev, isWinner, isLeaf, isDeleted, isStored } = row
  const query = isWinner ? {} : { rev }
  return (
    <>
      {isStored && !isShown ? (
        <a class="is-code" href={hashOf(['databases', database, 'documents', id], query)} title={rev}>
          {shortRev(rev)}
        </a>
      ) : (
        <span
          class={isShown ? 'is-code tree-shown' : 'is-code soft'}
          title={rev}
          aria-current={isShown ? 'true' : undefined}
        >
          {shortRev(rev)}
        </span>
      )}
      {isWinner ? (
        <Badge tone={isDeleted ? 'bad' : 'good'}>{isDeleted ? texts.isDeleted : texts.isWinner}</Badge>
      ) : (
        isLeaf && (
          <Badge tone={isDeleted ? 'plain' : 'warn'}>{isDeleted ? texts.isDeleted : texts.isConflict}</Badge>
        )
      )}
      {!isStored && <span class="fine">{texts.notStored}</span>}
    </>
  )
}

function x(lane: number): number {
  return EDGE + lane * LANE
}

function y(row: number): number {
  return row * ROW + ROW / 2
}

function pathOf({ from, to, fromLane, toLane }: TreeLine, rows: number): string {
  const [x1, x2, y1] = [x(fromLane), x(toLane), y(from)]
  if (to === null) return `M${x1} ${y1}V${Math.min(y1 + ROW / 2, rows * ROW)}`
  const y2 = y(to)
  if (x1 === x2) return `M${x1} ${y1}V${y2}`
  return `M${x1} ${y1}V${y2 - ROW / 2}C${x1} ${y2} ${x1} ${y2} ${x2} ${y2}`
}

function lineClass({ to, fromLane }: TreeLine): string {
  return `tree-line${fromLane === 0 ? ' is-winner' : ''}${to === null ? ' is-lost' : ''}`
}

function dotClass({ isWinner, isLeaf, isDeleted, isStored }: Extract<TreeRow, { kind: 'revision' }>): string {
  const kind = isDeleted ? 'is-deleted' : isWinner ? 'is-winner' : isLeaf ? 'is-conflict' : ''
  return `tree-dot ${kind} ${isStored ? '' : 'is-missing'}`
}
