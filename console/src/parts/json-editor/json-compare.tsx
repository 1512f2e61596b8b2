import { useEffect, useRef, useState } from 'preact/hooks'
import { en } from '../../strings/en.ts'
import type { CompareView } from './compare-view.ts'
import { Echoes } from './echoes.ts'
import { EditorPlace, useEditorHost } from './editor-host.tsx'

interface JsonCompareProps {
  readonly left: string
  readonly right: string
  readonly leftLabel: string
  readonly rightLabel: string
  /** Called with the text on the right after each change by the user; absent: it cannot be changed. */
  readonly onChange?: (right: string) => void
}

/** Below this width, in px, the two texts stand in one column. */
const NARROW = 760

/** Two texts beside each other, with their differences marked; on narrow screens in one column. */
export function JsonCompare(props: JsonCompareProps) {
  const { left, right, leftLabel, rightLabel, onChange } = props
  const echoes = useRef(new Echoes())
  const latest = useRef(props)
  latest.current = props
  const [isNarrow, setNarrow] = useState(() => innerWidth < NARROW)
  const isRightEditable = onChange !== undefined
  useEffect(() => {
    const onResize = () => setNarrow(innerWidth < NARROW)
    addEventListener('resize', onResize)
    return () => removeEventListener('resize', onResize)
  }, [])
  const { host, view, state } = useEditorHost<CompareView>(async () => {
    const { createCompareView } = await import('./compare-view.ts')
    const look = { leftLabel, rightLabel, takeLabel: en.codeEditor.take, isRightEditable, isNarrow }
    return (root, frame) =>
      createCompareView(root, frame, [left, latest.current.right], look, (text) => {
        echoes.current.send(text)
        latest.current.onChange?.(text)
      })
  }, [left, leftLabel, rightLabel, isRightEditable, isNarrow])
  useEffect(() => {
    if (!echoes.current.isEcho(right)) view.current?.setRight(right)
  }, [right, state])
  if (state === 'plain') {
    return (
      <div class="compare-plain">
        <textarea class="is-code" aria-label={leftLabel} readOnly value={left} />
        <textarea
          class="is-code"
          aria-label={rightLabel}
          readOnly={!isRightEditable}
          value={right}
          onInput={(event) => onChange?.(event.currentTarget.value)}
        />
      </div>
    )
  }
  return <EditorPlace host={host} isLoading={state === 'loading'} fills />
}
