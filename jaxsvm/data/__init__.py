"""Ways in for rows: checked arrays, files, data sets by name, chunks of what is too large for memory; scaling, splits."""

from .arrays import load_npz as load_npz
from .chunks import Chunks as Chunks
from .chunks import chunks as chunks
from .csv_files import load_csv as load_csv
from .files import load_file as load_file
from .labels import encode as encode
from .loaded import Loaded as Loaded
from .mapped import memory_map as memory_map
from .maps import Scale as Scale
from .maps import Standardize as Standardize
from .maps import scale as scale
from .maps import standardize as standardize
from .named import breast_cancer as breast_cancer
from .named import load as load
from .rows import dataset as dataset
from .splits import split as split
from .svmlight import load_svmlight as load_svmlight
from .writing import save_csv as save_csv
from .writing import save_npz as save_npz
from .writing import save_svmlight as save_svmlight
