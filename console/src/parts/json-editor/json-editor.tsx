import { useEffect, useState } from 'preact/hooks'
import { en } from '../../strings/en.ts'
import { Button } from '../button.tsx'
import { Icon } from '../icon.tsx'
import { CodeEditor } from './code-editor.tsx'
import {
  findFault,
  findObjectFault,
  type JsonFault,
  type JsonProblem,
  placeOf,
  repeatedNames,
  SHORT,
} from './exact-json.ts'

interface JsonEditorProps {
  readonly label: string
  readonly value: string
  /** Absent: the text cannot be changed. */
  readonly onChange?: (value: string) => void
  /** Whether only an object will do. */
  readonly isObject?: boolean
  readonly fills?: boolean
  readonly onSave?: () => void
  /** Says what else is wrong with a text that is JSON; null: nothing. */
  readonly check?: (text: string) => { readonly at: number; readonly text: string } | null
}

/** Longer texts are checked when the user pauses this long, in ms. */
const PAUSE_MS = 400

/** An editor for JSON, which says in words where the text is not JSON. The text is never rewritten. */
export function JsonEditor(props: JsonEditorProps) {
  const { label, value, onChange, isObject = false, fills = false, onSave, check } = props
  const [checked, setChecked] = useState(value)
  const [goTo, setGoTo] = useState<{ readonly at: number } | null>(null)
  useEffect(() => {
    if (value.length <= SHORT) {
      setChecked(value)
      return undefined
    }
    const timer = setTimeout(() => setChecked(value), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [value])
  const message = onChange === undefined ? null : messageOf(checked, isObject, check)
  return (
    <div class={`json-editor ${fills ? 'fills' : ''}`}>
      <CodeEditor
        label={label}
        value={value}
        language="json"
        fills={fills}
        faultAt={message?.isFault ? message.at : null}
        goTo={goTo}
        {...(onChange && { onChange })}
        {...(onSave && { onSave })}
      />
      {onChange !== undefined && (
        <div
          class={`json-fault ${message === null ? '' : message.isFault ? 'is-bad' : 'is-warn'}`}
          role="status"
        >
          {message !== null && (
            <>
              <Icon name={message.isFault ? 'error' : 'warning'} />
              <span>{message.text}</span>
              <Button isSmall kind="quiet" onClick={() => setGoTo({ at: message.at })}>
                {en.codeEditor.goTo}
              </Button>
            </>
          )}
        </div>
      )}
    </div>
  )
}

interface Message {
  readonly at: number
  readonly text: string
  readonly isFault: boolean
}

function messageOf(text: string, isObject: boolean, check: JsonEditorProps['check']): Message | null {
  const fault = isObject ? findObjectFault(text) : findFault(text)
  if (fault !== null) return { at: fault.at, text: faultText(text, fault), isFault: true }
  const other = check?.(text) ?? null
  if (other !== null) return { ...other, isFault: true }
  const [repeated] = repeatedNames(text)
  if (repeated === undefined) return null
  const { line } = placeOf(text, repeated.at)
  return { at: repeated.at, text: en.codeEditor.repeated(repeated.name, line), isFault: false }
}

/** Problems of which it helps to know what was found instead. */
const UNEXPECTED: readonly JsonProblem[] = [
  'value',
  'name',
  'name or end',
  'colon',
  'comma or brace',
  'comma or bracket',
  'nothing more',
  'number',
  'word',
]

/** A fault in words, with its place. */
export function faultText(text: string, fault: JsonFault): string {
  const { line, column } = placeOf(text, fault.at)
  const found = UNEXPECTED.includes(fault.problem) ? fault.found : ''
  return en.codeEditor.fault(line, column, en.codeEditor.problems[fault.problem], found)
}
