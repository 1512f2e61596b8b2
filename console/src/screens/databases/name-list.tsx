import { useRef, useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { Field } from '../../parts/field.tsx'
import { Icon } from '../../parts/icon.tsx'
import { en } from '../../strings/en.ts'

interface NameListProps {
  readonly label: string
  readonly hint: string
  readonly names: readonly string[]
  readonly onChange: (names: readonly string[]) => void
  readonly disabled?: boolean
}

/** Names that are added and removed one by one. */
export function NameList({ label, hint, names, onChange, disabled = false }: NameListProps) {
  const [text, setText] = useState('')
  const [error, setError] = useState<string | null>(null)
  const input = useRef<HTMLInputElement>(null)
  const add = () => {
    const name = text.trim()
    if (name === '') return
    if (names.includes(name)) {
      setError(en.databases.access.isListed(name))
      return
    }
    if (name.startsWith('_')) {
      setError(en.databases.access.noUnderscore)
      return
    }
    setText('')
    setError(null)
    onChange([...names, name])
  }
  const remove = (name: string) => {
    onChange(names.filter((each) => each !== name))
    input.current?.focus()
  }
  if (disabled) {
    return (
      <div class="name-list">
        <strong>{label}</strong>
        {names.length === 0 ? (
          <p class="soft">{en.databases.access.nobody}</p>
        ) : (
          <Chips {...{ label, names }} />
        )}
      </div>
    )
  }
  return (
    <div class="name-list">
      <Field label={label} hint={hint} error={error}>
        {(control) => (
          <div class="joined">
            <input
              {...control}
              ref={input}
              class="is-code"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== 'Enter' || event.isComposing) return
                event.preventDefault()
                add()
              }}
            />
            <Button icon="plus" label={en.databases.access.addTo(label)} onClick={add} />
          </div>
        )}
      </Field>
      {names.length > 0 && <Chips label={label} names={names} onRemove={remove} />}
    </div>
  )
}

interface ChipsProps {
  readonly label: string
  readonly names: readonly string[]
  /** Absent: they cannot be removed. */
  readonly onRemove?: (name: string) => void
}

function Chips({ label, names, onRemove }: ChipsProps) {
  return (
    <ul class="chips" aria-label={en.databases.access.listed(label)}>
      {names.map((name) => (
        <li class="chip" key={name}>
          <span>{name}</span>
          {onRemove && (
            <button
              type="button"
              aria-label={en.databases.access.remove(name)}
              title={en.databases.access.remove(name)}
              onClick={() => onRemove(name)}
            >
              <Icon name="close" />
            </button>
          )}
        </li>
      ))}
    </ul>
  )
}
