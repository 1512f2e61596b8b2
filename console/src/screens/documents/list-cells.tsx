import { Badge } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { number } from '../../strings/format.ts'
import type { IdRow } from './id-rows.ts'
import { shortRev } from './live-panel.tsx'

const { documents: texts } = en

interface CellsProps {
  readonly database: string
  readonly row: IdRow | undefined
  readonly place: number
  readonly isSelected: boolean
  readonly canSelect: boolean
  readonly onSelect: (isRange: boolean) => void
}

/** The cells of one row of the list. */
export function Cells({ database, row, place, isSelected, canSelect, onSelect }: CellsProps) {
  if (row === undefined) {
    return (
      <span role="gridcell" class="row-waits">
        <span class="for-readers">{texts.rowWaits(number(place + 1))}</span>
        <span class="row-bar" />
      </span>
    )
  }
  const { id, rev, conflicts } = row
  return (
    <>
      {canSelect && (
        <span role="gridcell" class="row-check">
          <input
            type="checkbox"
            aria-label={texts.select(id)}
            tabIndex={-1}
            checked={isSelected}
            onClick={(event) => onSelect(event.shiftKey)}
          />
        </span>
      )}
      <span role="gridcell" class="row-id">
        <a href={hashOf(['databases', database, 'documents', id])} tabIndex={-1} title={id}>
          {id}
        </a>
      </span>
      <span role="gridcell" class="row-facts">
        {conflicts !== undefined && conflicts > 0 && <Badge tone="warn">{texts.conflicts(conflicts)}</Badge>}
        <span class="row-rev is-code" title={rev}>
          {shortRev(rev)}
        </span>
      </span>
    </>
  )
}
