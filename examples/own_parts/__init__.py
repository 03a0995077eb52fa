"""Parts of one's own, each chosen by its module and class: a net, two reward models, a method (docs/your-own.md)."""
