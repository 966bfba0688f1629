"""The drawings of the pages on a grid of 16, in the surrounding text's colour. Each state has a shape of its own."""

_LINE = 'fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round"'

SHAPES = {
    "ring": f'<circle cx="8" cy="8" r="4.5" {_LINE} stroke-dasharray="2.6 2.1"/>',
    "half": f'<circle cx="8" cy="8" r="4.5" {_LINE}/><path d="M8 3.5a4.5 4.5 0 0 1 0 9z" fill="currentColor"/>',
    "disc": '<circle class="halo" cx="8" cy="8" r="7" fill="currentColor" opacity=".22"/>'
    '<circle cx="8" cy="8" r="4.2" fill="currentColor"/>',
    "square": '<rect x="4" y="4" width="8" height="8" rx="1.5" fill="currentColor"/>',
    "info": f'<circle cx="8" cy="8" r="5.5" {_LINE}/><path d="M8 7.4v3.6M8 5v.1" {_LINE}/>',
    "pause": f'<path d="M6 4v8M10 4v8" {_LINE}/>',
    "check": f'<path d="M3.5 8.5l3 3 6-7" {_LINE}/>',
    "cross": f'<path d="M4.5 4.5l7 7M11.5 4.5l-7 7" {_LINE}/>',
    "slash": f'<circle cx="8" cy="8" r="5" {_LINE}/><path d="M4.6 11.4l6.8-6.8" {_LINE}/>',
    "triangle": '<path d="M8 2.8l5.8 10.4H2.2z" fill="currentColor"/>',
    "play": '<path d="M5 3.5l7.5 4.5L5 12.5z" fill="currentColor"/>',
    "plus": f'<path d="M8 3.5v9M3.5 8h9" {_LINE}/>',
    "search": f'<circle cx="7" cy="7" r="4" {_LINE}/><path d="M10 10l3.2 3.2" {_LINE}/>',
    "copy": f'<rect x="5.5" y="5.5" width="7.5" height="7.5" rx="1.5" {_LINE}/>'
    f'<path d="M10.5 3H4.5A1.5 1.5 0 0 0 3 4.5v6" {_LINE}/>',
    "again": f'<path d="M12.8 8a4.8 4.8 0 1 1-1.5-3.5M12.8 2.2v2.9H9.9" {_LINE}/>',
    "edit": f'<path d="M3 13l.6-2.6 7-7 2 2-7 7z" {_LINE}/>',
    "down": f'<path d="M8 3v8M4.6 7.8L8 11.2l3.4-3.4M3 13.5h10" {_LINE}/>',
    "wrap": f'<path d="M2.5 4h11M2.5 8h8.2a2.2 2.2 0 0 1 0 4.4H8M9.6 10.8L8 12.4l1.6 1.6M2.5 12h2.5" {_LINE}/>',
    "left": f'<path d="M9.8 3.8L5.6 8l4.2 4.2" {_LINE}/>',
    "right": f'<path d="M6.2 3.8L10.4 8l-4.2 4.2" {_LINE}/>',
    "theme": f'<path d="M8 2.5a5.5 5.5 0 1 0 0 11z" fill="currentColor"/><circle cx="8" cy="8" r="5.5" {_LINE}/>',
    "out": f'<path d="M6.5 3H4a1 1 0 0 0-1 1v8a1 1 0 0 0 1 1h2.5M10 5l3 3-3 3M13 8H6.5" {_LINE}/>',
    "person": f'<circle cx="8" cy="5.4" r="2.6" {_LINE}/><path d="M3.2 13.2a4.8 4.8 0 0 1 9.6 0" {_LINE}/>',
    "clock": f'<circle cx="8" cy="8" r="5.2" {_LINE}/><path d="M8 5v3.2l2 1.3" {_LINE}/>',
    "code": f'<path d="M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5" {_LINE}/>',
}
