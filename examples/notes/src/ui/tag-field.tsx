import { useState } from 'preact/hooks'
import { Icon } from './icons.tsx'
import { useServices, useWatched } from './services.ts'

interface TagFieldProps {
  readonly tags: readonly string[]
  readonly onChange: (tags: readonly string[]) => void
}

/** The tags of a note, and a field for another one. */
export function TagField({ tags, onChange }: TagFieldProps) {
  const { library } = useServices()
  const { tags: known } = useWatched(library)
  const [name, setName] = useState('')
  const add = async () => {
    if (name.trim() === '') return
    setName('')
    const id = await library.addTag(name)
    if (!tags.includes(id)) onChange([...tags, id])
  }
  return (
    <div class="tags">
      {tags.map((id) => {
        const shown = known.find((tag) => tag.id === id)?.name ?? id.slice('tag:'.length)
        return (
          <span class="chip" key={id}>
            {shown}
            <button
              type="button"
              aria-label={`Remove the tag ${shown}`}
              onClick={() => onChange(tags.filter((tag) => tag !== id))}
            >
              <Icon name="close" />
            </button>
          </span>
        )
      })}
      <input
        class="tag-name"
        aria-label="Add a tag"
        placeholder="Add a tag"
        list="known-tags"
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
        onBlur={() => void add()}
        onKeyDown={(event) => {
          if (event.key === 'Enter') void add()
        }}
      />
      <datalist id="known-tags">
        {known.map((tag) => (
          <option value={tag.name} key={tag.id} />
        ))}
      </datalist>
    </div>
  )
}
