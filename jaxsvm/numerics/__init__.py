"""Arithmetic that must be right in float32, and forms that XLA compiles well; the one place that sets precision."""

from .bits import mix as mix
from .bits import multiply_high as multiply_high
from .golden import golden_section as golden_section
from .products import add_rows as add_rows
from .products import blocked as blocked
from .products import dot as dot
from .products import inner as inner
from .products import l1_distances as l1_distances
from .products import sqdist as sqdist
from .products import sqnorms as sqnorms
from .products import wide as wide
from .vectors import at as at
from .vectors import count as count
from .vectors import first_max as first_max
from .vectors import greatest as greatest
from .vectors import is_traced as is_traced
from .vectors import largest as largest
from .vectors import least as least
from .vectors import norm as norm
from .vectors import pick as pick
from .vectors import put as put
from .vectors import total as total
from .vectors import two_sum as two_sum
